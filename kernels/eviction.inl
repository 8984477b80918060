// An Eviction finds and lists the rows of a shard that have the first places in the order of eviction.
//
// Included by shard.inl. Thread-safety: same as the queue.
#ifndef SLOTWISE_KERNELS_EVICTION_INL_
#define SLOTWISE_KERNELS_EVICTION_INL_

#include <algorithm>
#include <cstdint>
#include <new>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kernels/backend/concept.h"
#include "kernels/body/eviction.h"
#include "kernels/body/row_ages.h"
#include "kernels/eviction_place.h"
#include "kernels/prepared_batch.inl"
#include "kernels/row_store.inl"
#include "slotwise/power_histogram.h"

namespace slotwise {

template <Backend B>
class EvictionOn {
 public:
  using Queue = typename B::Queue;

  // Protects the rows of the kept keys, whether they were searched for or not.
  void Protect(Queue& queue, RowStore<B>& store, const KeptKeys& kept) {
    ForgetCounts();
    const bool known = kept.size_on_device == nullptr;
    const std::uint32_t most = known ? kept.size : kept.most;
    protected_ = {};
    RowIndex* const rows = ReserveRows(queue, protected_rows_, most);
    if (rows != nullptr) protected_ = {.listed = rows, .size = most};
    const body::ProtectRows<typename B::Atomics> protect{store.hash_table(), kept.keys, Scored(store), rows};
    if (known) return B::ForEach(queue, most, protect);
    if (rows != nullptr) B::ForEach(queue, most, body::NoRows{rows});
    B::ForEachUpTo(queue, most, kept.size_on_device, protect);
  }
  // See Shard::EndProtection.
  std::vector<Key> EndProtection(Queue& queue, RowStore<B>& store, const EvictionOrder& order,
                                 const std::optional<EvictionPlace>& last) {
    ForgetCounts();
    const SomeRows rows = std::exchange(protected_, {}).Or(store.rows_used());
    body::EndProtection<typename B::Atomics> end{Scored(store), {rows.listed}, order, {}, nullptr};
    if (!last) {
      B::ForEachNumbered(queue, rows.size, end);
      return {};
    }
    end.last = *last;
    try {
      end.keys = spared_.Reserve(queue, rows.size);
    } catch (const std::bad_alloc&) {
      B::ForEachNumbered(queue, rows.size, end);
      throw;
    }
    std::vector<Key> keys(B::ForEachNumbered(queue, rows.size, end));
    B::CopyOut(queue, keys.data(), spared_.data(), keys.size());
    return keys;
  }

  // See Shard::CountPlaces. Waits.
  void Count(Queue& queue, RowStore<B>& store, const EvictionOrder& order, const PlacePrefix& prefix,
             std::span<std::uint64_t> counts) {
    Narrow(queue, store, order, prefix);
    const SomeRows rows = first_.Or(store.rows_used());
    B::template Histogram<PlacePrefix::kDigits>(
        queue, rows.size, body::NextDigit{Scored(store), {rows.listed}, order, prefix}, counts.data());
    counted_ = prefix;
    counts_.assign(counts.begin(), counts.end());
  }

  // Returns the keys of rows up to `last` that are not protected, in device memory, as a batch to be erased,
  // and sets `sums` to those of the rows, and `ages`, if it is not null, to their ages. Waits. Throws
  // std::bad_alloc.
  KeptKeys List(Queue& queue, RowStore<B>& store, const EvictionOrder& order, const EvictionPlace& last,
                EvictedSums& sums, EvictedAges* ages) {
    // The counts hold for this list alone, even if there is no memory for the list.
    const SomeRows rows = std::exchange(first_, {}).Or(store.rows_used());
    body::ListUpTo list{.scored = Scored(store), .rows = {rows.listed}, .order = order, .last = last};
    const std::uint32_t most =
        rows.listed != nullptr ? rows.size : B::ForEachNumbered(queue, rows.size, list);
    if (!MayGrow<Key>(queue, keys_, most, kBytesARow)) throw std::bad_alloc();
    list.keys = keys_.Reserve(queue, most);
    KeptKeys listed;
    listed.size = most == 0 ? 0 : B::ForEachNumbered(queue, rows.size, list);
    listed.most = listed.size;
    listed.keys = keys_.data();
    if (ages == nullptr) {
      sums = {listed.size, B::Sum(queue, listed.size, body::MixKeys{listed.keys}).low};
      return listed;
    }
    const DigestSums both = B::Sum(queue, rows.size, body::MixListed{list});
    sums = {listed.size, both.low};
    ages->sum = both.high;
    B::template Histogram<EvictedAges::kBuckets>(queue, rows.size, body::BucketOfListed{list},
                                                 ages->buckets.data());
    return listed;
  }

  // See Shard::CountAges. Waits.
  static RowAges CountAges(Queue& queue, RowStore<B>& store, const EvictionOrder& order) {
    RowAges counted;
    const auto count = [&](bool of_count, PowerHistogram& histogram) {
      B::template Histogram<PowerHistogram::kBuckets>(queue, store.rows_used(),
                                                      body::BucketOfRow{Scored(store), order, of_count},
                                                      histogram.buckets.data());
    };
    count(false, counted.ages);
    if (CountsOccurrences(order.score)) count(true, counted.counts);
    return counted;
  }

  // Frees lists of many rows, which no batch's budget counts, and keeps short ones for the next eviction.
  // REQUIRES: they are not needed any more.
  void FreeLongLists() {
    const std::size_t longest =
        std::max({keys_.size(), spared_.size(), first_rows_.size(), protected_rows_.size()});
    longest > kMostKept ? FreeScratch() : ForgetCounts();
  }
  void FreeScratch() {
    ForgetCounts();
    keys_ = {};
    spared_ = {};
    first_rows_ = {};
    protected_rows_ = {};
  }

 private:
  // Listed rows, or all.
  struct SomeRows {
    const RowIndex* listed = nullptr;
    std::uint32_t size = 0;
    SomeRows Or(std::uint32_t all) const { return listed != nullptr ? *this : SomeRows{nullptr, all}; }
  };

  static body::ScoredKey* Scored(RowStore<B>& store) { return store.values().scored; }

  // Returns whether tables may take the memory, if `scratch` has to grow to `size` elements. (To ask a host
  // for its memory takes as long as a small eviction.)
  template <class T>
  static bool MayGrow(Queue& queue, const typename B::template Scratch<T>& scratch, std::uint64_t size,
                      std::uint64_t bytes_each) {
    return size <= scratch.size() || size * bytes_each <= B::MemoryForTables(queue);
  }

  // Returns null if there is no memory: then launches go over all rows.
  static RowIndex* ReserveRows(Queue& queue, typename B::template Scratch<RowIndex>& scratch,
                               std::uint32_t size) {
    if (!MayGrow<RowIndex>(queue, scratch, size, sizeof(RowIndex))) return nullptr;
    try {
      return scratch.Reserve(queue, std::max(size, 1U));
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }

  // Lists the rows up to the last place with the prefix, once they are few: all that goes is among them.
  void Narrow(Queue& queue, RowStore<B>& store, const EvictionOrder& order, const PlacePrefix& prefix) {
    if (prefix.bits == 0) return ForgetCounts();
    const std::uint32_t digit = counted_.DigitOf(prefix.place);
    before_ = std::accumulate(counts_.begin(), counts_.begin() + digit, before_);
    const std::uint64_t up_to = before_ + counts_[digit];
    if (first_.listed != nullptr || up_to > store.rows_used() / kShareToList) return;
    RowIndex* const rows = ReserveRows(queue, first_rows_, static_cast<std::uint32_t>(up_to));
    if (rows == nullptr) return;
    const std::uint32_t size = B::ForEachNumbered(
        queue, store.rows_used(),
        body::ListUpTo{.scored = Scored(store), .order = order, .last = prefix.Last(), .listed = rows});
    first_ = {rows, size};
  }
  void ForgetCounts() {
    before_ = 0;
    first_ = {};
  }

  static constexpr std::size_t kMostKept = std::size_t{1} << 16;  // rows
  // Erasing a listed row takes its key twice, and its row once.
  static constexpr std::uint64_t kBytesARow = 2 * sizeof(Key) + sizeof(RowIndex);
  // A listed row's score is read alone, and takes as long as those of some rows in a row.
  static constexpr std::uint64_t kShareToList = 4;

  typename B::template Scratch<Key> keys_;
  typename B::template Scratch<Key> spared_;
  typename B::template Scratch<RowIndex> protected_rows_;
  typename B::template Scratch<RowIndex> first_rows_;
  SomeRows protected_;
  SomeRows first_;       // those up to the last place with the prefix that was counted last
  PlacePrefix counted_;  // the last prefix, and the counts of its digits
  std::vector<std::uint64_t> counts_;
  std::uint64_t before_ = 0;  // unprotected rows before the places with that prefix
};

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_EVICTION_INL_
