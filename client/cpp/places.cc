#include "client/cpp/places.h"

#include <iterator>

#include "wire/array_align.h"

namespace slotwise::client {

Places::Places(std::uint64_t first, std::uint64_t size) {
  free_.emplace(first, size / kArrayAlign * kArrayAlign - first);
}

std::optional<Places::Place> Places::Take(std::uint64_t bytes) {
  const Place place{.bytes = PaddedBytes(bytes)};
  if (bytes == 0) return place;
  // The first that is large enough, so that the same memory is used again and again.
  for (auto next = free_.begin(); next != free_.end(); ++next) {
    const auto [at, size] = *next;
    if (size < place.bytes) continue;
    free_.erase(next);
    if (size > place.bytes) free_.emplace(at + place.bytes, size - place.bytes);
    used_ += place.bytes;
    return Place{.at = at, .bytes = place.bytes};
  }
  return std::nullopt;
}

void Places::GiveBack(const Place& place) {
  if (place.bytes == 0) return;
  used_ -= place.bytes;
  auto here = free_.emplace(place.at, place.bytes).first;
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

std::optional<Places::OfCall> Places::TakeBoth(std::uint64_t body_bytes, std::uint64_t value_bytes) {
  const auto body = Take(body_bytes);
  if (!body) return std::nullopt;
  const auto values = Take(value_bytes);
  if (!values) {
    GiveBack(*body);
    return std::nullopt;
  }
  return OfCall{*body, *values};
}

void Places::GiveBack(const OfCall& places) {
  GiveBack(places.body);
  GiveBack(places.values);
}

}  // namespace slotwise::client
