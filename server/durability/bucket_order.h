// Bucket order: keys by bucket, and ascending in a bucket. All keys in a checkpoint's files are in this
// order, so equal tables make equal files.
// Thread-safety: free functions; a checker, one thread at a time.
#ifndef SLOTWISE_SERVER_DURABILITY_BUCKET_ORDER_H_
#define SLOTWISE_SERVER_DURABILITY_BUCKET_ORDER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "server/durability/table_arrays.h"
#include "slotwise/types.h"

namespace slotwise {

// A key and where its row is.
struct KeyRow {
  Key key;
  RowIndex row;
};

inline Key KeyOf(const KeyRow& item) { return item.key; }
inline Key KeyOf(Key item) { return item; }

template <class Item>
struct BucketOrder {
  std::vector<Item> items;
  BucketStarts starts;
};

// Sorts items (Key or KeyRow) in time n log(n / kBucketCount), with memory for another copy of them
// meanwhile. `bucket_of(key)` is below kBucketCount.
template <class Item, class BucketOf>
BucketOrder<Item> SortByBucket(std::vector<Item> items, const BucketOf& bucket_of) {
  BucketStarts starts(kBucketCount + 1);
  for (const Item& item : items) ++starts[bucket_of(KeyOf(item)) + 1];
  std::partial_sum(starts.begin(), starts.end(), starts.begin());
  BucketStarts places(starts.begin(), starts.end() - 1);
  std::vector<Item> sorted(items.size());
  for (const Item& item : items) sorted[places[bucket_of(KeyOf(item))]++] = item;
  for (std::uint32_t bucket = 0; bucket < kBucketCount; ++bucket) {
    std::sort(sorted.begin() + static_cast<std::ptrdiff_t>(starts[bucket]),
              sorted.begin() + static_cast<std::ptrdiff_t>(starts[bucket + 1]),
              [](const Item& a, const Item& b) { return KeyOf(a) < KeyOf(b); });
  }
  return {.items = std::move(sorted), .starts = std::move(starts)};
}

// Sees keys in pieces and knows whether they ascend in each bucket. Which bucket a key belongs to is what
// `starts` says.
class BucketOrderChecker {
 public:
  // Returns whether all keys since Begin, these included, ascend in their buckets and fit in `starts`.
  bool Take(std::span<const Key> keys, const BucketStarts& starts) {
    for (const Key key : keys) {
      if (next_ == starts.back()) return false;
      bool is_first = next_ == 0;
      for (; starts[bucket_ + 1] <= next_; ++bucket_) is_first = true;
      if (!is_first && key <= previous_) return false;
      previous_ = key;
      ++next_;
    }
    return true;
  }

  std::uint64_t taken() const { return next_; }

 private:
  std::uint64_t next_ = 0;
  std::uint32_t bucket_ = 0;  // of the key before
  Key previous_{0};
};

// Returns whether `starts` has kBucketCount + 1 elements that begin with 0 and never fall.
inline bool AreStarts(const BucketStarts& starts) {
  return starts.size() == kBucketCount + 1 && starts.front() == 0 && std::ranges::is_sorted(starts);
}

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_BUCKET_ORDER_H_
