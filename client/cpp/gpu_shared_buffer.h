// GpuSharedBuffer is memory of a server's device that is shared over one connection, with its allocations.
//
// The device copies a call's arrays into this memory, in the order of the caller's stream. The copy is kept
// until the call is over, because the caller may overwrite its own arrays before the call is sent again. A
// lookup's values stay where the server wrote them, and belong to the caller. Their place is free once the
// caller has released them and the caller's stream has come to that point.
// Thread-safety: any thread.
#ifndef SLOTWISE_CLIENT_CPP_GPU_SHARED_BUFFER_H_
#define SLOTWISE_CLIENT_CPP_GPU_SHARED_BUFFER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "client/cpp/allocator.h"
#include "client/cpp/device_access.h"
#include "slotwise/gpu.h"
#include "slotwise/status.h"
#include "slotwise/v1/data.pb.h"

namespace slotwise::client {

// The place of a call in the order of a trainer's calls. A call behind it is sent once it has ended.
class Turn final : public GpuPushUnderWay {
 public:
  // Called with whether the call has ended with success.
  using Then = std::function<void(bool well)>;

  bool has_arrays() const override { return has_arrays_; }
  void TakeArrays() { has_arrays_ = true; }

  // Notes the call's end. Called once.
  void End(bool well) {
    std::vector<Then> behind;
    {
      const std::lock_guard lock(mutex_);
      ended_well_ = well;
      behind.swap(behind_);
    }
    for (const Then& then : behind) then(well);
  }
  // Calls `then` once the call has ended: at once if it has, else from the thread that ends it.
  void Await(Then then) {
    std::unique_lock lock(mutex_);
    if (!ended_well_) return behind_.push_back(std::move(then));
    const bool well = *ended_well_;
    lock.unlock();
    then(well);
  }

 private:
  std::atomic<bool> has_arrays_ = false;
  std::mutex mutex_;
  // Guarded by mutex_:
  std::optional<bool> ended_well_;
  std::vector<Then> behind_;
};

class GpuSharedBuffer;

// A copy of a call's arrays in a shared buffer. The destructor frees the place.
struct CarriedArrays {
  std::shared_ptr<GpuSharedBuffer> shared_buffer;
  Allocator::Allocation place;
  std::shared_ptr<StreamPoint> there;  // passed once all arrays are copied

  CarriedArrays(std::shared_ptr<GpuSharedBuffer> in, const Allocator::Allocation& at,
                std::shared_ptr<StreamPoint> copied);
  ~CarriedArrays();
  CarriedArrays(const CarriedArrays&) = delete;
  CarriedArrays& operator=(const CarriedArrays&) = delete;
};

// The part of a call's state that exists if the call goes by a device's memory. `stream` is the caller's: its
// work writes the call's arrays before and reads the values afterwards.
struct OnDevice {
  std::shared_ptr<DeviceAccess> access;
  void* stream = nullptr;
  std::shared_ptr<Turn> turn = nullptr;              // the call's own, if other calls may come behind it
  std::shared_ptr<Turn> behind = nullptr;            // the turn of the call that this one comes behind
  std::shared_ptr<CarriedArrays> carried = nullptr;  // once the arrays were put into a shared buffer
};

class GpuSharedBuffer : public std::enable_shared_from_this<GpuSharedBuffer> {
 public:
  GpuSharedBuffer(std::shared_ptr<DeviceAccess> access, std::shared_ptr<std::byte[]> memory,
                  std::uint64_t bytes);

  // Allocates places for a call's arrays and for `value_bytes` bytes of values, and enqueues the copy of the
  // arrays on the call's stream. The source is `of.carried` if the call was sent before, else `arrays`. `of`
  // then carries the arrays in this buffer. RESOURCE_EXHAUSTED: there is no room.
  Result<v1::Allocations> Put(std::uint64_t call, const DeviceAccess::Pieces& arrays,
                              std::uint64_t value_bytes, OnDevice& of);
  // Returns the values of an answered call, for the caller to keep; null: it has none.
  std::shared_ptr<std::byte[]> TakeValues(std::uint64_t call);
  // Frees a call's places, which the server does not use any more, except for values that were taken and
  // arrays that the call still carries. Does nothing if the call has no places.
  void Free(std::uint64_t call);

  // Frees all calls' places likewise, because the connection is over.
  void End();

  // Returns the sum of the bytes of all places in use.
  std::uint64_t used() const;
  std::uint64_t bytes() const { return bytes_; }

 private:
  friend CarriedArrays;
  struct Taken {
    std::shared_ptr<CarriedArrays> arrays;
    Allocator::Allocation values;
    void* stream = nullptr;
  };
  struct Freed {
    Allocator::Allocation place;
    std::shared_ptr<StreamPoint> at;
  };
  // Frees the released places whose point has passed. REQUIRES: mutex_ is held.
  void Reclaim();
  std::span<const std::byte> At(const Allocator::Allocation& place) const {
    return {memory_.get() + place.at, place.bytes};
  }
  // Releases a place, which is free once `at` has passed; null: at once.
  void LetGo(const Allocator::Allocation& place, std::shared_ptr<StreamPoint> at);

  const std::shared_ptr<DeviceAccess> access_;
  const std::shared_ptr<std::byte[]> memory_;
  const std::uint64_t bytes_;
  mutable std::mutex mutex_;
  // Guarded by mutex_:
  Allocator free_;
  std::unordered_map<std::uint64_t, Taken> calls_;
  std::list<Freed> freed_;  // released, but perhaps still in use by a stream; in the order of release
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_GPU_SHARED_BUFFER_H_
