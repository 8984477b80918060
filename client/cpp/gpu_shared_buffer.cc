#include "client/cpp/gpu_shared_buffer.h"

#include <string>
#include <utility>

#include "wire/array_align.h"

namespace slotwise::client {

CarriedArrays::CarriedArrays(std::shared_ptr<GpuSharedBuffer> in, const Allocator::Allocation& at,
                             std::shared_ptr<StreamPoint> copied)
    : shared_buffer(std::move(in)), place(at), there(std::move(copied)) {}

CarriedArrays::~CarriedArrays() { shared_buffer->LetGo(place, std::move(there)); }

GpuSharedBuffer::GpuSharedBuffer(std::shared_ptr<DeviceAccess> access, std::shared_ptr<std::byte[]> memory,
                                 std::uint64_t bytes)
    : access_(std::move(access)), memory_(std::move(memory)), bytes_(bytes), free_(kArrayAlign, bytes) {}

void GpuSharedBuffer::Reclaim() {
  std::erase_if(freed_, [this](const Freed& freed) {
    if (freed.at != nullptr && !freed.at->Passed()) return false;
    free_.GiveBack(freed.place);
    return true;
  });
}

Result<v1::Allocations> GpuSharedBuffer::Put(std::uint64_t call, const DeviceAccess::Pieces& arrays,
                                             std::uint64_t value_bytes, OnDevice& of) {
  const bool is_here = of.carried != nullptr && of.carried->shared_buffer.get() == this;
  std::uint64_t body_bytes = 0;
  if (!is_here) {
    for (const auto& array : arrays) body_bytes += PaddedBytes(array.size());
  }
  Allocator::OfCall taken;
  {
    std::unique_lock lock(mutex_);
    Reclaim();
    std::optional<Allocator::OfCall> places;
    while (!(places = free_.TakeBoth(body_bytes, value_bytes))) {
      if (body_bytes + value_bytes > bytes_) {
        return ResourceExhausted("a call takes " + std::to_string(body_bytes + value_bytes) +
                                 " bytes of the memory that the server shares on the GPU, which has " +
                                 std::to_string(bytes_) +
                                 ": look up or push less at once, or raise the server's "
                                 "limits.max_gpu_shared_mib");
      }
      if (freed_.empty()) {
        return ResourceExhausted(
            "a call takes " + std::to_string(body_bytes + value_bytes) +
            " bytes of the memory that the server shares on the GPU, of whose " + std::to_string(bytes_) +
            " " + std::to_string(free_.used()) +
            " are in use: let go of earlier results, or raise the server's limits.max_gpu_shared_mib");
      }
      const auto at = freed_.front().at;
      lock.unlock();
      if (Status waited = at->Wait(); !waited.ok()) return waited;
      lock.lock();
      Reclaim();
    }
    taken = *places;
  }
  if (!is_here) {
    const auto from = of.carried == nullptr
                          ? arrays
                          : DeviceAccess::Pieces{of.carried->shared_buffer->At(of.carried->place)};
    auto copied = access_->CopyIn(of.stream, memory_.get() + taken.body.at, from);
    if (!copied.ok()) {
      const std::lock_guard lock(mutex_);
      free_.GiveBack(taken);
      return copied.status();
    }
    of.carried = std::make_shared<CarriedArrays>(shared_from_this(), taken.body, std::move(*copied));
    if (of.turn != nullptr) of.turn->TakeArrays();
  }
  {
    const std::lock_guard lock(mutex_);
    calls_.emplace(call, Taken{of.carried, taken.values, of.stream});
  }
  v1::Allocations said;
  said.set_body(of.carried->place.at);
  said.set_body_bytes(of.carried->place.bytes);
  said.set_values(taken.values.at);
  said.set_values_bytes(taken.values.bytes);
  return said;
}

std::shared_ptr<std::byte[]> GpuSharedBuffer::TakeValues(std::uint64_t call) {
  const std::lock_guard lock(mutex_);
  const auto its = calls_.find(call);
  if (its == calls_.end() || its->second.values.bytes == 0) return nullptr;
  const Allocator::Allocation place = std::exchange(its->second.values, {});
  // The caller may have enqueued reads of the values on the stream before releasing them.
  return {memory_.get() + place.at,
          [shared_buffer = shared_from_this(), place, stream = its->second.stream](std::byte*) {
            auto at = shared_buffer->access_->Mark(stream);
            shared_buffer->LetGo(place, at.ok() ? std::move(*at) : nullptr);
          }};
}

void GpuSharedBuffer::LetGo(const Allocator::Allocation& place, std::shared_ptr<StreamPoint> at) {
  const std::lock_guard lock(mutex_);
  freed_.push_back({place, std::move(at)});
}

void GpuSharedBuffer::Free(std::uint64_t call) {
  Taken its;  // destroyed after the lock is released, because its arrays take the lock
  const std::lock_guard lock(mutex_);
  const auto found = calls_.find(call);
  if (found == calls_.end()) return;
  its = std::move(found->second);
  calls_.erase(found);
  free_.GiveBack(its.values);
}

void GpuSharedBuffer::End() {
  std::unordered_map<std::uint64_t, Taken> calls;  // destroyed after the lock is released; own this buffer
  const std::lock_guard lock(mutex_);
  calls.swap(calls_);
  for (const auto& [id, call] : calls) free_.GiveBack(call.values);
}

std::uint64_t GpuSharedBuffer::used() const {
  const std::lock_guard lock(mutex_);
  return free_.used();
}

}  // namespace slotwise::client
