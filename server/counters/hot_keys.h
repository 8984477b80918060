// HotKeys: which keys come most often, and how often, from a sample of all that come.
//
// A rank samples one key of about a thousand, at random distances, and counts the sampled keys in a
// space-saving sketch (Metwally, Agrawal, El Abbadi 2005) of bounded size: a key that is not in a full sketch
// takes the place of one that was counted least, and its count, of which an unknown part is its own.
// Shares are given by what is certainly a key's own, so they are never too large but for the sampling. Counts
// are halved now and then, so that they are of late.
#ifndef SLOTWISE_SERVER_COUNTERS_HOT_KEYS_H_
#define SLOTWISE_SERVER_COUNTERS_HOT_KEYS_H_

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "slotwise/types.h"

namespace slotwise {

// What a rank knows of the keys that come most often.
struct HotKeyStats {
  struct Counted {
    Key key{};
    std::uint64_t at_least = 0;  // sampled occurrences that are the key's
    std::uint64_t at_most = 0;   // and those that may be
    friend bool operator==(const Counted&, const Counted&) = default;
  };
  std::uint64_t sampled = 0;  // keys that were sampled of late
  std::vector<Counted> keys;  // by `at_least`, most first, then by key
  // Returns which part of the sampled keys the first `most` of the keys are, at least; 0 if there are none.
  double ShareOf(std::size_t most) const;
};

// The sketch. Thread-safety: one thread at a time.
class SpaceSaving {
 public:
  // Counts `most` keys, and halves all counts once it has counted `window` keys of late. REQUIRES: most > 0.
  explicit SpaceSaving(std::size_t most, std::uint64_t window);

  // Counts a key. Takes the same time whatever `most` is, on average.
  void Count(Key key);
  HotKeyStats Read() const;

 private:
  struct Counter {
    Key key;
    std::uint64_t count;
    std::uint64_t others;  // the most of `count` that is not the key's own
  };
  // Returns the place of a counter that has counted least.
  std::size_t FindLeast();
  void Halve();

  const std::size_t most_;
  const std::uint64_t window_;
  std::uint64_t sampled_ = 0;
  std::vector<Counter> counters_;
  std::unordered_map<Key, std::size_t> place_of_;
  // No count is below `least_`, and none before `next_` is as low.
  std::uint64_t least_ = 0;
  std::size_t next_ = 0;
};

// The sample of the keys that come to a rank, of one table.
// Thread-safety: any thread. No thread waits: where two bring keys at once, only one of the batches is
// sampled.
class HotKeys {
 public:
  static constexpr std::size_t kKeys = 512;
  // One key of so many is sampled, on average.
  static constexpr std::uint64_t kDistance = 1024;
  static constexpr std::uint64_t kWindow = std::uint64_t{1} << 16;

  void Sample(std::span<const Key> keys);
  HotKeyStats Read() const;

 private:
  mutable std::mutex mutex_;
  SpaceSaving sketch_{kKeys, kWindow};
  std::uint64_t ahead_ = 0;  // keys that come before the next one that is sampled
  std::uint64_t random_ = 0;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_COUNTERS_HOT_KEYS_H_
