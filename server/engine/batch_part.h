// BatchPart: one request's share of a batch, in host or device memory.
//
// The transports read a request's arrays into host memory, or copy them from a shared buffer of host or
// device memory. A BatchPart says where the arrays lie, whether the client may still write them, and which
// budget they are charged to. The charge ends with the BatchPart.
// Thread-safety: plain values.
#ifndef SLOTWISE_SERVER_ENGINE_BATCH_PART_H_
#define SLOTWISE_SERVER_ENGINE_BATCH_PART_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "kernels/shard.h"
#include "server/engine/array_pool.h"
#include "server/engine/budget.h"
#include "slotwise/batch.h"
#include "slotwise/data_type.h"
#include "slotwise/types.h"

namespace slotwise {

// An array whose memory is freed with its last owner. A new array is uninitialised, because its first user
// overwrites all of it.
template <class T>
class BatchArray {
 public:
  BatchArray() = default;
  // Makes `size` elements of host memory: from `pool` if there is one, otherwise ordinary memory.
  explicit BatchArray(std::size_t size, ArrayPool* pool = nullptr)
      : data_(pool == nullptr ? std::make_shared_for_overwrite<T[]>(size) : pool->Take<T>(size)),
        size_(size) {}
  // Takes `size` elements of any memory.
  BatchArray(std::shared_ptr<T[]> data, std::size_t size) : data_(std::move(data)), size_(size) {}
  BatchArray(BatchArray&& other) noexcept { Swap(other); }
  BatchArray& operator=(BatchArray&& other) noexcept {
    Swap(other);
    return *this;
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  std::size_t bytes() const { return size_ * sizeof(T); }
  std::span<T> span() { return {data_.get(), size_}; }
  std::span<const T> span() const { return {data_.get(), size_}; }

 private:
  void Swap(BatchArray& other) noexcept {
    data_.swap(other.data_);
    std::swap(size_, other.size_);
  }

  std::shared_ptr<T[]> data_;
  std::size_t size_ = 0;
};

enum class MemoryKind : std::uint8_t {
  kHost,    // this process's own memory
  kShared,  // host memory that is shared with the client
  kDevice,  // memory of the rank's device
};

// Bags of `samples` samples, one for each slot of the table. REQUIRES: Validate(view(), ...) is OK.
struct BatchPart {
  std::uint32_t samples = 0;
  BatchArray<Key> keys;
  BatchArray<std::uint32_t> offsets;         // bags + 1, from 0
  BatchArray<float> weights;                 // finite; empty: all 1
  BatchArray<float> values = {};             // gradients of a push, rows of an import, nothing otherwise
  DataType value_type = DataType::kFloat32;  // of gradients; a float of `values` holds two 16-bit numbers
  MemoryKind memory = MemoryKind::kHost;     // of all four arrays
  // True if the client may write the arrays while the server reads them. The engine refuses such a batch,
  // because the checked arrays have to be the applied ones: the submitter copies the arrays first.
  bool client_may_write = false;
  Reservation reservation = {};

  std::uint64_t bytes() const { return keys.bytes() + offsets.bytes() + weights.bytes() + values.bytes(); }
  ConstNumbers numbers() const { return {values.data(), value_type}; }
  // A reader on the host REQUIRES: the memory is not kDevice.
  BatchView view() const { return {keys.span(), offsets.span(), weights.span()}; }

  // Lets the arrays go, and with them their reservation.
  void DropArrays() { *this = {}; }
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_BATCH_PART_H_
