// StagedUpload: brings many small arrays to the device in few copies.
//
// Even the smallest copy to a GPU costs microseconds of the host's time, and a round of many tables has
// thousands of small arrays. So small arrays are first written to a staging buffer, in host memory that the
// device allocates, and arrays that are neighbours in device memory go there in one copy. Large arrays are
// copied directly. A device that shares the host's memory needs no staging.
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_SERVER_ENGINE_STAGED_UPLOAD_H_
#define SLOTWISE_SERVER_ENGINE_STAGED_UPLOAD_H_

#include <cstddef>
#include <cstdint>

#include "kernels/shard.h"
#include "server/collective/device_array.h"
#include "server/engine/array_pool.h"
#include "server/engine/batch_part.h"

namespace slotwise {

class StagedUpload {
 public:
  // The arguments outlive it.
  StagedUpload(Device& device, Stream& stream) : device_(device), stream_(stream), staging_(device) {}

  // Returns the bytes of the staging buffer that Copy takes for an array in memory of that kind.
  std::size_t StagedBytes(std::size_t bytes, MemoryKind memory) const {
    const bool staged =
        memory != MemoryKind::kDevice && bytes < ArrayPool::kLeastBytes && !device_.SharesHostMemory();
    return staged ? bytes : 0;
  }

  // Begins the uploads of a round, which take at most `bytes` bytes of the staging buffer. Throws
  // std::bad_alloc. REQUIRES: the stream has done the uploads of the round before.
  void Begin(std::size_t bytes) {
    next_ = staging_.Reserve(bytes);
    from_ = next_;
    waiting_ = 0;
  }

  // Copies an array to device memory in the stream's order. An array that is not staged stays in use until
  // the stream has done the copy. `bytes` is a multiple of 4.
  void Copy(void* to, const void* from, std::size_t bytes, MemoryKind memory = MemoryKind::kHost);

  // Returns where the caller has to write, before the next call, the `bytes` bytes that are to be copied to
  // `to`: `to` itself, or a place in the staging buffer.
  void* WriteTo(void* to, std::size_t bytes);

  // Queues the copy of the staged bytes that were not copied yet. REQUIRED after the last Copy or WriteTo to
  // an allocation: the next allocation may begin where this one ends, and a single copy must not span both.
  void Flush();

 private:
  Device& device_;
  Stream& stream_;
  HostScratch<std::byte> staging_;
  std::byte* next_ = nullptr;  // the free end of the staging buffer
  // The last `waiting_` staged bytes have not been copied: they lie at `from_`, and go to `to_`.
  const std::byte* from_ = nullptr;
  std::byte* to_ = nullptr;
  std::size_t waiting_ = 0;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_STAGED_UPLOAD_H_
