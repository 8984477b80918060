#include "client/cpp/arena.h"

#include <cstring>
#include <iterator>
#include <utility>

#include "wire/array_align.h"

namespace slotwise::client {

Arena::Arena(std::shared_ptr<SharedMemory> memory) : memory_(std::move(memory)) {
  const std::uint64_t size = memory_->bytes().size() / kArrayAlign * kArrayAlign;
  free_.emplace(SharedMemory::kFirstPlace, size - SharedMemory::kFirstPlace);
}

std::optional<Arena::Place> Arena::Take(std::uint64_t bytes) {
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

void Arena::GiveBack(const Place& place) {
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

std::optional<v1::ArenaPlaces> Arena::Put(std::uint64_t call, const Body& body, std::uint64_t value_bytes) {
  std::uint64_t body_bytes = 0;
  for (const auto& piece : body) body_bytes += piece.size();
  Places places;
  {
    const std::lock_guard lock(mutex_);
    const auto for_body = Take(body_bytes);
    if (!for_body) return std::nullopt;
    const auto for_values = Take(value_bytes);
    if (!for_values) {
      GiveBack(*for_body);
      return std::nullopt;
    }
    places = {*for_body, *for_values};
    calls_.emplace(call, places);
  }
  std::byte* to = memory_->bytes().data() + places.body.at;
  for (const auto& piece : body) {
    if (!piece.empty()) std::memcpy(to, piece.data(), piece.size());
    to += piece.size();
  }
  v1::ArenaPlaces said;
  said.set_body(places.body.at);
  said.set_body_bytes(body_bytes);
  said.set_values(places.values.at);
  said.set_values_bytes(places.values.bytes);
  return said;
}

bool Arena::Get(std::uint64_t call, const std::vector<std::span<std::byte>>& values) const {
  Place place;
  {
    const std::lock_guard lock(mutex_);
    const auto its = calls_.find(call);
    if (its == calls_.end()) return false;
    place = its->second.values;
  }
  const std::byte* from = memory_->bytes().data() + place.at;
  std::uint64_t left = place.bytes;
  for (const auto& piece : values) {
    if (piece.size() > left) return false;
    if (!piece.empty()) std::memcpy(piece.data(), from, piece.size());
    from += piece.size();
    left -= piece.size();
  }
  return memory_->alive();
}

void Arena::Free(std::uint64_t call) {
  const std::lock_guard lock(mutex_);
  const auto its = calls_.find(call);
  if (its == calls_.end()) return;
  GiveBack(its->second.body);
  GiveBack(its->second.values);
  calls_.erase(its);
}

std::uint64_t Arena::used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

}  // namespace slotwise::client
