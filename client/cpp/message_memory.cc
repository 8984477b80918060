#include "client/cpp/message_memory.h"

#include <grpc/slice.h>

#include "wire/hand_over.h"

namespace slotwise::client {

struct MessageMemory::Held {
  std::shared_ptr<MessageMemory> owner;
  Block block;
};

std::pair<grpc::Slice, std::byte*> MessageMemory::Take(std::size_t size) {
  if (size < kLeast) {
    // Another kind of slice would hold the bytes of a small message inside itself, and move them with it.
    grpc_slice slice = grpc_slice_malloc_large(size);
    auto* const bytes = reinterpret_cast<std::byte*>(GRPC_SLICE_START_PTR(slice));
    return {grpc::Slice(slice, grpc::Slice::STEAL_REF), bytes};
  }
  auto held = std::make_unique<Held>(Held{shared_from_this(), TakeBlock(size)});
  std::byte* const bytes = held->block.bytes.get();
  const auto release = [](void* last) {
    TakeOver(last);
    const std::unique_ptr<Held> mine(static_cast<Held*>(last));
    mine->owner->Return(std::move(mine->block));
  };
  HandOver(held.get());
  return {grpc::Slice(bytes, size, release, held.release()), bytes};
}

std::size_t MessageMemory::kept() const {
  const std::lock_guard lock(mutex_);
  return kept_;
}

MessageMemory::Block MessageMemory::TakeBlock(std::size_t size) {
  {
    const std::lock_guard lock(mutex_);
    // Takes the smallest block that is large enough, unless more than half of it would be wasted.
    auto best = free_.end();
    for (auto block = free_.begin(); block != free_.end(); ++block) {
      if (block->size < size || block->size / 2 > size) continue;
      if (best == free_.end() || block->size < best->size) best = block;
    }
    if (best != free_.end()) {
      Block taken = std::move(*best);
      *best = std::move(free_.back());
      free_.pop_back();
      kept_ -= taken.size;
      return taken;
    }
  }
  const std::size_t rounded = (size + kLeast - 1) / kLeast * kLeast;
  return {std::make_unique_for_overwrite<std::byte[]>(rounded), rounded};
}

void MessageMemory::Return(Block block) {
  const std::lock_guard lock(mutex_);
  if (kept_ + block.size > kMostKept) return;
  kept_ += block.size;
  free_.push_back(std::move(block));
}

}  // namespace slotwise::client
