// Finds the distinct keys of a batch. A lookup whose bags have one key each then sends every key once, and
// copies the rows that come back to all places of the batch.
//
// An attacker may choose keys that collide. So a key is hashed with an odd number that is drawn for each
// batch (multiply-shift, Dietzfelbinger et al. 1997). Any two keys share a chain of the hash table with a
// probability of at most 2 / chains. Chains are then short on average, because the attacker does not know the
// number.
// Thread-safety: plain values and free functions.
#ifndef SLOTWISE_CLIENT_CPP_DISTINCT_KEYS_H_
#define SLOTWISE_CLIENT_CPP_DISTINCT_KEYS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "client/cpp/batches.h"
#include "slotwise/types.h"

namespace slotwise::client {

// A KeyHash hashes the keys of one batch.
class KeyHash {
 public:
  // Draws a hash from a secret of this process.
  static KeyHash Draw();
  // For tests, which name the drawn number.
  explicit constexpr KeyHash(std::uint64_t drawn) : multiplier_(drawn | 1) {}
  // Returns another hash, which is as secret as this one.
  KeyHash Another() const;

  // Returns a number below 2^bits. REQUIRES: 1 <= bits <= 32.
  std::uint32_t operator()(Key key, int bits) const {
    return static_cast<std::uint32_t>((Value(key) * multiplier_) >> (64 - bits));
  }

 private:
  std::uint64_t multiplier_;
};

// Estimates which share of a batch's keys repeat an earlier key of the batch: 0 to below 1. It hashes every
// key, and looks at all places of about 512 keys that the hash has chosen, because repeated keys would mostly
// be missed among a few places. The standard deviation is about 0.05 or less. REQUIRES: a key.
double EstimateRepeatedShare(std::span<const Key> keys, const KeyHash& hash);

// Row `to` of a batch is a copy of row `from`.
struct RowCopy {
  std::uint32_t to = 0;
  std::uint32_t from = 0;

  friend bool operator==(const RowCopy&, const RowCopy&) = default;
};

// The distinct keys of a batch. They are the batch's first keys, in place, except that keys which repeat an
// earlier one are replaced by keys that first occur further behind. So most rows arrive in their place.
struct DistinctKeys {
  std::vector<Key> keys;
  // The copies, in order, that bring rows to their places once row i of `keys` is at place i.
  std::vector<RowCopy> copies;
};

// Returns the distinct keys of a batch. Some repeated keys are kept if needed to make their number a multiple
// of `multiple`. Returns nothing if there are then more than `most`. REQUIRES: 1 to 2^31 keys, whose number
// is a multiple of `multiple`.
std::optional<DistinctKeys> FindDistinctKeys(std::span<const Key> keys, const KeyHash& hash,
                                             std::uint32_t multiple, std::size_t most);

// Copies rows of `dim` elements within `rows`, one after the other.
void CopyRows(std::span<const RowCopy> copies, std::size_t dim, std::span<float> rows);

// Replaces batches of a checked lookup, before it is cut, by their distinct keys, if that saves time: if bags
// have one key each, without weights, and enough keys are repeated. The row of such a bag depends on its key
// alone. With several slots some repeated keys stay, because samples are sent whole.
void SendEachKeyOnce(Batches& lookups);

// Copies the rows of distinct keys to all their places in the callers' arrays. Called once all requests are
// answered.
void CopyRepeatedRows(const Batches& lookups);

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_DISTINCT_KEYS_H_
