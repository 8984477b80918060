#include "client/cpp/gpu_arena.h"

#include <string>
#include <utility>

#include "wire/array_align.h"

namespace slotwise::client {

GpuArena::GpuArena(std::shared_ptr<DeviceAccess> access, std::shared_ptr<std::byte[]> memory,
                   std::uint64_t bytes)
    : access_(std::move(access)), memory_(std::move(memory)), bytes_(bytes), free_(kArrayAlign, bytes) {}

void GpuArena::Reclaim() {
  std::erase_if(freed_, [this](const Freed& freed) {
    if (freed.at != nullptr && !freed.at->Passed()) return false;
    free_.GiveBack(freed.place);
    return true;
  });
}

Result<v1::ArenaPlaces> GpuArena::Put(std::uint64_t call, const DeviceAccess::Pieces& arrays,
                                      std::uint64_t value_bytes, const OnDevice& of) {
  std::uint64_t body_bytes = 0;
  for (const auto& array : arrays) body_bytes += PaddedBytes(array.size());
  Places::OfCall taken;
  {
    std::unique_lock lock(mutex_);
    Reclaim();
    std::optional<Places::OfCall> places;
    while (!(places = free_.TakeBoth(body_bytes, value_bytes))) {
      if (body_bytes + value_bytes > bytes_) {
        return ResourceExhausted("a call takes " + std::to_string(body_bytes + value_bytes) +
                                 " bytes of the memory that the server shares on the GPU, which has " +
                                 std::to_string(bytes_) +
                                 ": look up or push less at once, or raise the server's "
                                 "limits.max_gpu_arena_mib");
      }
      if (freed_.empty()) {
        return ResourceExhausted(
            "a call takes " + std::to_string(body_bytes + value_bytes) +
            " bytes of the memory that the server shares on the GPU, of whose " + std::to_string(bytes_) +
            " " + std::to_string(free_.used()) +
            " are in use: let go of earlier results, or raise the server's limits.max_gpu_arena_mib");
      }
      const auto at = freed_.front().at;
      lock.unlock();
      if (Status waited = at->Wait(); !waited.ok()) return waited;
      lock.lock();
      Reclaim();
    }
    taken = *places;
    calls_.emplace(call, Taken{taken, of});
  }
  if (Status copied = access_->CopyIn(*of.ready, memory_.get() + taken.body.at, arrays); !copied.ok()) {
    Free(call);
    return copied;
  }
  v1::ArenaPlaces said;
  said.set_body(taken.body.at);
  said.set_body_bytes(body_bytes);
  said.set_values(taken.values.at);
  said.set_values_bytes(taken.values.bytes);
  return said;
}

std::shared_ptr<std::byte[]> GpuArena::TakeValues(std::uint64_t call) {
  const std::lock_guard lock(mutex_);
  const auto its = calls_.find(call);
  if (its == calls_.end() || its->second.places.values.bytes == 0) return nullptr;
  const Places::Place place = std::exchange(its->second.places.values, {});
  return {memory_.get() + place.at,
          [arena = shared_from_this(), place, of = its->second.of](std::byte*) { arena->LetGo(place, of); }};
}

// Whoever lets go of values may have asked their stream to read them.
void GpuArena::LetGo(const Places::Place& place, const OnDevice& of) {
  auto at = access_->Mark(of.stream);
  const std::lock_guard lock(mutex_);
  freed_.push_back({place, at.ok() ? *at : nullptr});
}

void GpuArena::Free(std::uint64_t call) {
  const std::lock_guard lock(mutex_);
  const auto its = calls_.find(call);
  if (its == calls_.end()) return;
  free_.GiveBack(its->second.places);
  calls_.erase(its);
}

std::uint64_t GpuArena::used() const {
  const std::lock_guard lock(mutex_);
  return free_.used();
}

}  // namespace slotwise::client
