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

// The estimate looks at about so many distinct keys, whose number is off by about 5 %.
constexpr std::size_t kSampledKeys = 512;

// A batch of fewer keys is sent as it is: a call of so many takes about as long as one of none.
constexpr std::size_t kLeastKeys = 256;
// All keys of a batch of up to so many are compared at once, in a few microseconds. Of more, some are looked
// at first.
constexpr std::size_t kMostKeysWithoutEstimate = 1024;
// If a smaller share of the keys is repeated, sending each key once saves no more time than the comparison
// and the copies take (docs/performance-log.md, "Each key once").
constexpr double kLeastRepeatedShare = 0.25;
// A batch of more keys is sent as it is: the comparison takes up to 50 bytes a key meanwhile.
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

// Returns how many bits number about `count` things. REQUIRES: count <= 2^31.
int BitsFor(std::size_t count) { return std::max(1, static_cast<int>(std::bit_width(count))); }

// A KeyTable finds, for each place in an array of keys, one after the other, the first place that has the
// same key.
class KeyTable {
 public:
  // `keys` outlive the table. REQUIRES: at most 2^31 keys.
  KeyTable(std::span<const Key> keys, const KeyHash& hash)
      : keys_(keys),
        hash_(hash),
        bits_(std::min(32, BitsFor(keys.size()) + 1)),
        newest_(std::size_t{1} << bits_, kNone),
        next_(std::make_unique_for_overwrite<std::uint32_t[]>(keys.size())) {}

  // Returns `place` if the key there is new. There are more than twice as many chains as keys, so a chain
  // that has keys nearly always has the one alone. Whether it has any cannot be foreseen, so no branch asks
  // that: a branch would double the time.
  std::uint32_t FirstPlaceOf(std::uint32_t place) {
    const Key key = keys_[place];
    std::uint32_t& newest = newest_[hash_(key, bits_)];
    next_[place] = kNone;
    const std::uint32_t if_none = newest == kNone ? ~std::uint32_t{0} : 0;  // all bits
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
  std::vector<std::uint32_t> newest_;      // of each chain: the place of its newest key
  std::unique_ptr<std::uint32_t[]> next_;  // of the first place of a key: the next one in its chain
};

}  // namespace

KeyHash KeyHash::Draw() {
  static const std::uint64_t secret = Random64();
  static std::atomic<std::uint64_t> batches{0};
  return KeyHash(Mix(secret + 0x9E3779B97F4A7C15ULL * batches.fetch_add(1, std::memory_order_relaxed)));
}

KeyHash KeyHash::Another() const { return KeyHash(Mix(multiplier_)); }

double EstimateRepeatedShare(std::span<const Key> keys, const KeyHash& hash) {
  // One key in 2^bits is looked at, with all its places.
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
  // Says where the row of each key arrives: at first, the first place of the same key.
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
  found.keys.emplace_back();  // which takes what is in excess below
  // The places among the sent keys whose keys repeat an earlier one, and then the place behind them all.
  const auto repeated = std::make_unique_for_overwrite<std::uint32_t[]>(sent + std::size_t{1});
  std::uint32_t repeats = 0;
  for (std::uint32_t i = 0; i < sent; ++i) {
    repeated[repeats] = i;
    repeats += places[i] == i ? 0 : 1;
  }
  repeated[repeats] = sent;
  // The first of the keys behind goes where one of those was; others of the same key follow it.
  std::uint32_t taken = 0;
  for (std::uint32_t i = sent; i < count; ++i) {
    const bool is_first = places[i] == i;
    found.keys[repeated[taken]] = keys[i];
    places[i] = is_first ? repeated[taken] : places[places[i]];
    taken += is_first ? 1 : 0;
  }
  found.keys.pop_back();
  // Repeated keys that have not given way are sent once more.
  for (; taken < repeats; ++taken) {
    found.keys[repeated[taken]] = keys[repeated[taken]];
    places[repeated[taken]] = repeated[taken];
  }

  // From the end: a row that arrived in the place of another belongs behind all that are sent, and is copied
  // before the other one is. All else is copied from where it belongs.
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

// Returns whether the batch may have one key in each bag, and rows that are not weighted: it has as many keys
// as bags.
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
