// HotKeys: estimates from a sample which keys come most often, and how often.
//
// A rank samples about one key of a thousand, at random distances, and counts the sampled keys in a
// space-saving sketch (Metwally, Agrawal, El Abbadi 2005) of bounded size: a key that is not in a full sketch
// replaces a key with the least count and inherits that count. Shares use only the counts that are certainly
// a key's own, so they are never too large but for the sampling. Counts are halved now and then, so that
// recent keys weigh more.
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

// A rank's estimates of the keys that come most often.
struct HotKeyStats {
  struct Counted {
    Key key{};
    std::uint64_t at_least = 0;  // sampled occurrences that are certainly the key's
    std::uint64_t at_most = 0;   // the same, with those that may be the key's
    friend bool operator==(const Counted&, const Counted&) = default;
  };
  std::uint64_t sampled = 0;  // keys sampled recently
  std::vector<Counted> keys;  // by `at_least`, most first, then by key
  // Returns the least share that the first `most` of `keys` have of the sampled keys; 0 if there are none.
  double ShareOf(std::size_t most) const;
};

// The sketch. Thread-safety: one thread at a time.
class SpaceSaving {
 public:
  // Counts `most` keys, and halves all counts once `sampled` reaches `window`. REQUIRES: most > 0.
  explicit SpaceSaving(std::size_t most, std::uint64_t window);

  // Counts a key. Takes constant time on average, whatever `most` is.
  void Count(Key key);
  HotKeyStats Read() const;

 private:
  struct Counter {
    Key key;
    std::uint64_t count;
    std::uint64_t others;  // the part of `count` that may belong to other keys
  };
  // Returns the place of a counter with the least count.
  std::size_t FindLeast();
  void Halve();

  const std::size_t most_;
  const std::uint64_t window_;
  std::uint64_t sampled_ = 0;
  std::vector<Counter> counters_;
  std::unordered_map<Key, std::size_t> place_of_;
  // No count is below `least_`, and all counts before `next_` are above it.
  std::uint64_t least_ = 0;
  std::size_t next_ = 0;
};

// Samples the keys of one table that come to a rank.
// Thread-safety: any thread. Sample never waits: of two batches at once, only one is sampled.
class HotKeys {
 public:
  static constexpr std::size_t kKeys = 512;
  // One key of kDistance is sampled, on average.
  static constexpr std::uint64_t kDistance = 1024;
  static constexpr std::uint64_t kWindow = std::uint64_t{1} << 16;

  void Sample(std::span<const Key> keys);
  HotKeyStats Read() const;

 private:
  mutable std::mutex mutex_;
  SpaceSaving sketch_{kKeys, kWindow};
  std::uint64_t ahead_ = 0;  // keys to skip before the next sampled one
  std::uint64_t random_ = 0;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_COUNTERS_HOT_KEYS_H_
