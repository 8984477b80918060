#include "server/counters/hot_keys.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace slotwise {

double HotKeyStats::ShareOf(std::size_t most) const {
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < std::min(most, keys.size()); ++i) count += keys[i].at_least;
  return sampled == 0 ? 0 : static_cast<double>(count) / static_cast<double>(sampled);
}

// Keys that somebody crafts to collide share a bucket of the map. The map has at most `most` keys, and one
// key of a thousand is looked up, so the map does not need the tables' secret hash.
SpaceSaving::SpaceSaving(std::size_t most, std::uint64_t window) : most_(most), window_(window) {
  counters_.reserve(most_);
  place_of_.reserve(most_);
}

void SpaceSaving::Count(Key key) {
  if (sampled_ >= window_) Halve();
  ++sampled_;
  if (const auto found = place_of_.find(key); found != place_of_.end()) {
    ++counters_[found->second].count;
    return;
  }
  if (counters_.size() < most_) {
    place_of_.emplace(key, counters_.size());
    counters_.push_back({key, 1, 0});
    return;
  }
  const std::size_t place = FindLeast();
  Counter& counter = counters_[place];
  auto node = place_of_.extract(counter.key);
  node.key() = key;
  place_of_.insert(std::move(node));
  counter = {key, counter.count + 1, counter.count};
}

// Counts only grow between two calls of Halve, and a replaced key's new count is above `least_`. So each
// counter is visited once for each value of `least_`.
std::size_t SpaceSaving::FindLeast() {
  for (; next_ < counters_.size(); ++next_) {
    if (counters_[next_].count == least_) return next_;
  }
  next_ = 0;
  least_ = std::ranges::min(counters_, {}, &Counter::count).count;
  while (counters_[next_].count != least_) ++next_;
  return next_;
}

void SpaceSaving::Halve() {
  sampled_ /= 2;
  for (Counter& counter : counters_) {
    counter.count /= 2;
    counter.others /= 2;
  }
  next_ = counters_.size();  // the least counter is unknown
}

HotKeyStats SpaceSaving::Read() const {
  HotKeyStats stats{.sampled = sampled_, .keys = {}};
  stats.keys.reserve(counters_.size());
  for (const Counter& counter : counters_) {
    stats.keys.push_back({counter.key, counter.count - counter.others, counter.count});
  }
  std::ranges::sort(stats.keys, [](const HotKeyStats::Counted& a, const HotKeyStats::Counted& b) {
    return std::tuple(b.at_least, Value(a.key)) < std::tuple(a.at_least, Value(b.key));
  });
  return stats;
}

void HotKeys::Sample(std::span<const Key> keys) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  std::uint64_t at = ahead_;
  while (at < keys.size()) {
    sketch_.Count(keys[at]);
    // A linear congruential generator (Knuth's MMIX), of which the high bits are random enough. Distances are
    // 1 to twice the average, so that no batch's own period shows.
    random_ = random_ * 6364136223846793005U + 1442695040888963407U;
    at += 1 + (random_ >> 33) % (2 * kDistance - 1);
  }
  ahead_ = at - keys.size();
}

HotKeyStats HotKeys::Read() const {
  const std::scoped_lock lock(mutex_);
  return sketch_.Read();
}

}  // namespace slotwise
