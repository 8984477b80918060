// GpuSharedBuffer: memory of a server's device that a connection shares with it, and who has which of its
// places.
//
// A call's arrays are copied there by the device, in the order of the caller's stream, and are kept until the
// call is over: if it is sent again, the caller may have written its own. A lookup's values stay where the
// server wrote them: they are the caller's from then on, and their place is free once the caller has let go
// of them, and the stream that they were for has come to that point.
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

// The place of a call in the order of a trainer's calls. Calls that come behind it are sent once it has
// ended.
class Turn final : public GpuPushUnderWay {
 public:
  // Hears whether the call has ended as it should.
  using Then = std::function<void(bool well)>;

  bool has_arrays() const override { return has_arrays_; }
  void TakeArrays() { has_arrays_ = true; }

  // The call has ended. Is called once.
  void End(bool well) {
    std::vector<Then> behind;
    {
      const std::lock_guard lock(mutex_);
      ended_well_ = well;
      behind.swap(behind_);
    }
    for (const Then& then : behind) then(well);
  }
  // Calls `then` once the call has ended: at once, or from the thread that ends it.
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

// A call's arrays in a shared buffer, whose place is given back with them.
struct CarriedArrays {
  std::shared_ptr<GpuSharedBuffer> shared_buffer;
  Allocator::Allocation place;
  std::shared_ptr<StreamPoint> there;  // all are copied

  CarriedArrays(std::shared_ptr<GpuSharedBuffer> in, const Allocator::Allocation& at,
                std::shared_ptr<StreamPoint> copied);
  ~CarriedArrays();
  CarriedArrays(const CarriedArrays&) = delete;
  CarriedArrays& operator=(const CarriedArrays&) = delete;
};

// Tells of a call by a device's memory. Its stream is the caller's, in which its arrays are written and its
// values will be read.
struct OnDevice {
  std::shared_ptr<DeviceAccess> access;
  void* stream = nullptr;
  std::shared_ptr<Turn> turn = nullptr;              // the call's own, if others may come behind it
  std::shared_ptr<Turn> behind = nullptr;            // of the call that this one comes behind
  std::shared_ptr<CarriedArrays> carried = nullptr;  // once the arrays were put into a shared buffer
};

class GpuSharedBuffer : public std::enable_shared_from_this<GpuSharedBuffer> {
 public:
  GpuSharedBuffer(std::shared_ptr<DeviceAccess> access, std::shared_ptr<std::byte[]> memory,
                  std::uint64_t bytes);

  // Finds room for a call's arrays and for so many bytes of values, and asks the call's stream to copy the
  // arrays: those that it carries, if it was sent before, else `arrays`. It carries them here from then on.
  // RESOURCE_EXHAUSTED: there is no room.
  Result<v1::Allocations> Put(std::uint64_t call, const DeviceAccess::Pieces& arrays,
                              std::uint64_t value_bytes, OnDevice& of);
  // A call was answered: its values are the caller's until the last owner lets go of them. Null: it has none.
  std::shared_ptr<std::byte[]> TakeValues(std::uint64_t call);
  // The server uses a call's places no more: they are free, but for values that were taken and arrays that
  // the call still carries. Does nothing if it has none.
  void Free(std::uint64_t call);

  // The connection is over, and the server uses no call's places.
  void End();

  // Returns the bytes of all places that are in use.
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
  // Makes places that were let go of free, those whose point has passed. With mutex_ held.
  void Reclaim();
  std::span<const std::byte> At(const Allocator::Allocation& place) const {
    return {memory_.get() + place.at, place.bytes};
  }
  // A place is free once `at` has passed; null: now.
  void LetGo(const Allocator::Allocation& place, std::shared_ptr<StreamPoint> at);

  const std::shared_ptr<DeviceAccess> access_;
  const std::shared_ptr<std::byte[]> memory_;
  const std::uint64_t bytes_;
  mutable std::mutex mutex_;
  // Guarded by mutex_:
  Allocator free_;
  std::unordered_map<std::uint64_t, Taken> calls_;
  std::list<Freed> freed_;  // in the order in which they were let go of
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_GPU_SHARED_BUFFER_H_
