#include "client/cpp/allocator.h"

#include <iterator>

#include "wire/array_align.h"

namespace slotwise::client {

Allocator::Allocator(std::uint64_t first, std::uint64_t size) {
  free_.emplace(first, size / kArrayAlign * kArrayAlign - first);
}

std::optional<Allocator::Allocation> Allocator::Take(std::uint64_t bytes) {
  const Allocation allocation{.bytes = PaddedBytes(bytes)};
  if (bytes == 0) return allocation;
  // The first that is large enough, so that the same memory is used again and again.
  for (auto next = free_.begin(); next != free_.end(); ++next) {
    const auto [at, size] = *next;
    if (size < allocation.bytes) continue;
    free_.erase(next);
    if (size > allocation.bytes) free_.emplace(at + allocation.bytes, size - allocation.bytes);
    used_ += allocation.bytes;
    return Allocation{.at = at, .bytes = allocation.bytes};
  }
  return std::nullopt;
}

void Allocator::GiveBack(const Allocation& allocation) {
  if (allocation.bytes == 0) return;
  used_ -= allocation.bytes;
  auto here = free_.emplace(allocation.at, allocation.bytes).first;
  if (const auto next = std::next(here); next != free_.end() && here->first + here->second == next->first) {
    here->second += next->second;
    free_.erase(next);
  }
  if (here == free_.begin()) return;
  if (const auto before = std::prev(here); before->first + before->second == here->first) {
    before->second += here->second;
    free_.erase(here);
  }
}

std::optional<Allocator::OfCall> Allocator::TakeBoth(std::uint64_t body_bytes, std::uint64_t value_bytes) {
  const auto body = Take(body_bytes);
  if (!body) return std::nullopt;
  const auto values = Take(value_bytes);
  if (!values) {
    GiveBack(*body);
    return std::nullopt;
  }
  return OfCall{*body, *values};
}

void Allocator::GiveBack(const OfCall& allocations) {
  GiveBack(allocations.body);
  GiveBack(allocations.values);
}

}  // namespace slotwise::client
