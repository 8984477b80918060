// GpuArena: memory of a server's device that a connection shares with it, and who has which of its places.
//
// A call's arrays are copied there by the device. A lookup's values stay where the server wrote them: they
// are the caller's from then on, and their place is free once the caller has let go of them, and the stream
// that they were for has come to that point.
// Thread-safety: any thread.
#ifndef SLOTWISE_CLIENT_CPP_GPU_ARENA_H_
#define SLOTWISE_CLIENT_CPP_GPU_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "client/cpp/device_access.h"
#include "client/cpp/places.h"
#include "slotwise/status.h"
#include "slotwise/v1/data.pb.h"

namespace slotwise::client {

// Says where a call's arrays are, and whose stream its values are for.
struct OnDevice {
  std::shared_ptr<DeviceAccess> access;
  void* stream = nullptr;              // the caller's
  std::shared_ptr<StreamPoint> ready;  // the arrays are there
};

class GpuArena : public std::enable_shared_from_this<GpuArena> {
 public:
  GpuArena(std::shared_ptr<DeviceAccess> access, std::shared_ptr<std::byte[]> memory, std::uint64_t bytes);

  // Copies a call's arrays into the arena, once they are there, finds room for so many bytes of values, and
  // waits. RESOURCE_EXHAUSTED: there is no room.
  Result<v1::ArenaPlaces> Put(std::uint64_t call, const DeviceAccess::Pieces& arrays,
                              std::uint64_t value_bytes, const OnDevice& of);
  // A call was answered: its values are the caller's until the last owner lets go of them. Null: it has none.
  std::shared_ptr<std::byte[]> TakeValues(std::uint64_t call);
  // A call is over: its places are free, but for values that were taken. Does nothing if it has none.
  void Free(std::uint64_t call);

  // Returns the bytes of all places that are in use.
  std::uint64_t used() const;
  std::uint64_t bytes() const { return bytes_; }

 private:
  struct Taken {
    Places::OfCall places;
    OnDevice of;
  };
  struct Freed {
    Places::Place place;
    std::shared_ptr<StreamPoint> at;
  };
  // Makes places that were let go of free, those whose point has passed. With mutex_ held.
  void Reclaim();
  void LetGo(const Places::Place& place, const OnDevice& of);

  const std::shared_ptr<DeviceAccess> access_;
  const std::shared_ptr<std::byte[]> memory_;
  const std::uint64_t bytes_;
  mutable std::mutex mutex_;
  // Guarded by mutex_:
  Places free_;
  std::unordered_map<std::uint64_t, Taken> calls_;
  std::list<Freed> freed_;  // in the order in which they were let go of
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_GPU_ARENA_H_
