#include "client/cpp/distinct_keys.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <utility>

namespace slotwise::client {
namespace {

// The estimate looks at about this many distinct keys, so it is wrong by about 5 %.
constexpr std::size_t kSampledKeys = 512;

// A batch of fewer keys is sent as it is: a call with so few takes about as long as one without any.
constexpr std::size_t kLeastKeys = 256;
// In a batch of up to this many keys, all are compared, in a few microseconds. In a larger one, a sample
// comes first.
constexpr std::size_t kMostKeysWithoutEstimate = 1024;
// If a smaller share of the keys is repeated, sending each key once does not save the time that the
// comparison and the copies take (docs/performance-log.md, "Each key once").
constexpr double kLeastRepeatedShare = 0.25;
// A batch of more keys is sent as it is: comparing them takes up to 50 bytes of memory per key.
constexpr std::size_t kMostKeys = std::size_t{1} << 22;

constexpr std::uint32_t kNone = ~std::uint32_t{0};

// SplitMix64's output function (Steele et al. 2014).
std::uint64_t Mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

std::uint64_t Random64() {
  std::random_device random;
  return (std::uint64_t{random()} << 32) | random();
}

// Returns how many bits are needed to number about `count` things. REQUIRES: count <= 2^31.
int BitsFor(std::size_t count) { return std::max(1, static_cast<int>(std::bit_width(count))); }

// A KeyTable finds, for each place of an array in turn, the first place that has the same key.
class KeyTable {
 public:
  // `keys` outlive the table. REQUIRES: at most 2^31 keys.
  KeyTable(std::span<const Key> keys, const KeyHash& hash)
      : keys_(keys),
        hash_(hash),
        bits_(std::min(32, BitsFor(keys.size()) + 1)),
        newest_(std::size_t{1} << bits_, kNone),
        next_(std::make_unique_for_overwrite<std::uint32_t[]>(keys.size())) {}

  // Returns the first place of the key; `place` if the key is new. There are more than twice as many chains
  // as keys, so a chain with keys nearly always has only this key. Whether a chain has keys cannot be
  // predicted, and a branch on that would double the time, so there is none.
  std::uint32_t FirstPlaceOf(std::uint32_t place) {
    const Key key = keys_[place];
    std::uint32_t& newest = newest_[hash_(key, bits_)];
    next_[place] = kNone;
    const std::uint32_t if_none = newest == kNone ? ~std::uint32_t{0} : 0;  // all bits, or none
    const std::uint32_t candidate = (newest & ~if_none) | (place & if_none);
    if (keys_[candidate] == key) [[likely]] {
      newest = candidate;
      return candidate;
    }
    for (std::uint32_t other = next_[newest]; other != kNone; other = next_[other]) {
      if (keys_[other] == key) return other;
    }
    next_[place] = newest;
    newest = place;
    return place;
  }

 private:
  const std::span<const Key> keys_;
  const KeyHash hash_;
  const int bits_;
  std::vector<std::uint32_t> newest_;      // by chain: the place of its newest key
  std::unique_ptr<std::uint32_t[]> next_;  // by the first place of a key: the next one in its chain
};

}  // namespace

KeyHash KeyHash::Draw() {
  static const std::uint64_t secret = Random64();
  static std::atomic<std::uint64_t> batches{0};
  return KeyHash(Mix(secret + 0x9E3779B97F4A7C15ULL * batches.fetch_add(1, std::memory_order_relaxed)));
}

KeyHash KeyHash::Another() const { return KeyHash(Mix(multiplier_)); }

double EstimateRepeatedShare(std::span<const Key> keys, const KeyHash& hash) {
  // Looks at one key in 2^bits, with all its places.
  const int bits = BitsFor(keys.size() / kSampledKeys);
  std::vector<Key> sampled;
  sampled.reserve(2 * kSampledKeys);
  for (const Key key : keys) {
    if (hash(key, bits) == 0) sampled.push_back(key);
  }
  KeyTable table(sampled, hash.Another());
  std::size_t distinct = 0;
  for (std::uint32_t i = 0; i < sampled.size(); ++i) distinct += table.FirstPlaceOf(i) == i ? 1 : 0;
  const auto of_batch = static_cast<double>(std::max<std::size_t>(1, distinct << bits));
  return std::max(0.0, 1 - of_batch / static_cast<double>(keys.size()));
}

std::optional<DistinctKeys> FindDistinctKeys(std::span<const Key> keys, const KeyHash& hash,
                                             std::uint32_t multiple, std::size_t most) {
  const auto count = static_cast<std::uint32_t>(keys.size());
  KeyTable table(keys, hash);
  // For each key, the place where its row arrives: first, the first place of the same key.
  const auto places = std::make_unique_for_overwrite<std::uint32_t[]>(count);
  std::size_t distinct = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    places[i] = table.FirstPlaceOf(i);
    distinct += places[i] == i ? 1 : 0;
    if (distinct > most) return std::nullopt;
  }
  const auto sent = static_cast<std::uint32_t>((distinct + multiple - 1) / multiple * multiple);
  if (sent > most) return std::nullopt;

  DistinctKeys found;
  found.keys.assign(keys.begin(), keys.begin() + sent);
  found.keys.emplace_back();  // replaces the surplus keys below
  // The places among the sent keys that repeat an earlier key, and at last the place behind all of them.
  const auto repeated = std::make_unique_for_overwrite<std::uint32_t[]>(sent + std::size_t{1});
  std::uint32_t repeats = 0;
  for (std::uint32_t i = 0; i < sent; ++i) {
    repeated[repeats] = i;
    repeats += places[i] == i ? 0 : 1;
  }
  repeated[repeats] = sent;
  // A key that first occurs behind takes such a place, and its other places point there.
  std::uint32_t taken = 0;
  for (std::uint32_t i = sent; i < count; ++i) {
    const bool is_first = places[i] == i;
    found.keys[repeated[taken]] = keys[i];
    places[i] = is_first ? repeated[taken] : places[places[i]];
    taken += is_first ? 1 : 0;
  }
  found.keys.pop_back();
  // Repeated keys that were not replaced are sent once more.
  for (; taken < repeats; ++taken) {
    found.keys[repeated[taken]] = keys[repeated[taken]];
    places[repeated[taken]] = repeated[taken];
  }

  // Goes backwards: a row that arrived in another key's place belongs behind all sent rows, so it is copied
  // before that place is overwritten. All other rows are copied from their own places.
  found.copies.resize(count);
  std::size_t copies = 0;
  for (std::uint32_t i = count; i-- > 0;) {
    found.copies[copies] = {.to = i, .from = places[i]};
    copies += places[i] == i ? 0 : 1;
  }
  found.copies.resize(copies);
  return found;
}

void CopyRows(std::span<const RowCopy> copies, std::size_t dim, std::span<float> rows) {
  for (const RowCopy& copy : copies) {
    std::memcpy(rows.data() + copy.to * dim, rows.data() + copy.from * dim, dim * sizeof(float));
  }
}

namespace {

// Returns whether the batch may have one key in each bag, and no weights: it has as many keys as bags.
bool MayHaveOneKeyABag(const BatchView& batch) {
  return batch.weights.empty() && (batch.offsets.empty() || batch.offsets.size() == batch.keys.size() + 1);
}
// REQUIRES: MayHaveOneKeyABag.
bool HasOneKeyABag(const BatchView& batch) {
  for (std::size_t bag = 0; bag < batch.offsets.size(); ++bag) {
    if (batch.offsets[bag] != bag) return false;
  }
  return true;
}

// Returns a batch's distinct keys if it pays to send them alone.
std::optional<DistinctKeys> DistinctKeysIfManyRepeat(const BatchView& batch, std::uint32_t slots) {
  const std::span<const Key> keys = batch.keys;
  if (keys.size() < kLeastKeys || keys.size() > kMostKeys || !MayHaveOneKeyABag(batch)) return std::nullopt;
  const KeyHash hash = KeyHash::Draw();
  const bool estimates = keys.size() > kMostKeysWithoutEstimate;
  const double most = (1 - kLeastRepeatedShare) * static_cast<double>(keys.size());
  try {
    if (estimates && EstimateRepeatedShare(keys, hash) < kLeastRepeatedShare) return std::nullopt;
    if (!HasOneKeyABag(batch)) return std::nullopt;
    return FindDistinctKeys(keys, hash, slots, static_cast<std::size_t>(most));
  } catch (const std::bad_alloc&) {
    return std::nullopt;
  }
}

}  // namespace

void SendEachKeyOnce(Batches& lookups) {
  for (TableBatch& table : lookups.tables) {
    auto distinct = DistinctKeysIfManyRepeat(table.view, table.checked.slots);
    if (!distinct) continue;
    table.distinct = std::make_shared<const DistinctKeys>(std::move(*distinct));
    const std::size_t bags = table.distinct->keys.size();
    table.view.keys = table.distinct->keys;
    // The offsets of bags of one key are 0, 1, 2, ...
    if (!table.view.offsets.empty()) table.view.offsets = table.view.offsets.first(bags + 1);
    table.checked.view = table.view;
    table.checked.samples = bags / table.checked.slots;
    table.caller_out = table.out;
    table.out = table.out.first(table.checked.samples * table.checked.width);
  }
}

void CopyRepeatedRows(const Batches& lookups) {
  for (const TableBatch& table : lookups.tables) {
    if (!table.distinct) continue;
    CopyRows(table.distinct->copies, table.checked.width / table.checked.slots, table.caller_out);
  }
}

}  // namespace slotwise::client
