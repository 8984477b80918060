#include "client/cpp/shared_buffer.h"

#include <cstring>
#include <utility>

namespace slotwise::client {

SharedBuffer::SharedBuffer(std::shared_ptr<SharedMemory> memory)
    : memory_(std::move(memory)), free_(SharedMemory::kFirstPlace, memory_->bytes().size()) {}

std::optional<v1::Allocations> SharedBuffer::Put(std::uint64_t call, const Body& body,
                                                 std::uint64_t value_bytes) {
  std::uint64_t body_bytes = 0;
  for (const auto& piece : body) body_bytes += piece.size();
  Allocator::OfCall allocations;
  {
    const std::lock_guard lock(mutex_);
    const auto taken = free_.TakeBoth(body_bytes, value_bytes);
    if (!taken) return std::nullopt;
    allocations = *taken;
    calls_.emplace(call, allocations);
  }
  std::byte* to = memory_->bytes().data() + allocations.body.at;
  for (const auto& piece : body) {
    if (!piece.empty()) std::memcpy(to, piece.data(), piece.size());
    to += piece.size();
  }
  v1::Allocations said;
  said.set_body(allocations.body.at);
  said.set_body_bytes(body_bytes);
  said.set_values(allocations.values.at);
  said.set_values_bytes(allocations.values.bytes);
  return said;
}

bool SharedBuffer::Get(std::uint64_t call, const std::vector<std::span<std::byte>>& values) const {
  Allocator::Allocation allocation;
  {
    const std::lock_guard lock(mutex_);
    const auto its = calls_.find(call);
    if (its == calls_.end()) return false;
    allocation = its->second.values;
  }
  const std::byte* from = memory_->bytes().data() + allocation.at;
  std::uint64_t left = allocation.bytes;
  for (const auto& piece : values) {
    if (piece.size() > left) return false;
    if (!piece.empty()) std::memcpy(piece.data(), from, piece.size());
    from += piece.size();
    left -= piece.size();
  }
  return memory_->alive();
}

void SharedBuffer::Free(std::uint64_t call) {
  const std::lock_guard lock(mutex_);
  const auto its = calls_.find(call);
  if (its == calls_.end()) return;
  free_.GiveBack(its->second);
  calls_.erase(its);
}

std::uint64_t SharedBuffer::used() const {
  const std::lock_guard lock(mutex_);
  return free_.used();
}

}  // namespace slotwise::client
