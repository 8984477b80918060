// An Eviction finds and lists the rows of a shard that have the first places in the order of eviction.
//
// Included by shard.inl. Thread-safety: same as the queue.
#ifndef SLOTWISE_KERNELS_EVICTION_INL_
#define SLOTWISE_KERNELS_EVICTION_INL_

#include <cstdint>
#include <new>
#include <span>
#include <vector>

#include "kernels/backend/concept.h"
#include "kernels/body/eviction.h"
#include "kernels/eviction_place.h"
#include "kernels/prepared_batch.inl"
#include "kernels/row_store.inl"

namespace slotwise {

template <Backend B>
class EvictionOn {
 public:
  using Queue = typename B::Queue;

  // Protects the rows of the kept keys, whether they were searched for or not.
  void Protect(Queue& queue, RowStore<B>& store, const KeptKeys& kept) {
    const body::ProtectRows<typename B::Atomics> protect{store.hash_table(), kept.keys, Scored(store)};
    if (kept.size_on_device == nullptr) {
      B::ForEach(queue, kept.size, protect);
    } else {
      B::ForEachUpTo(queue, kept.most, kept.size_on_device, protect);
    }
  }
  void EndProtection(Queue& queue, RowStore<B>& store) {
    B::ForEach(queue, store.rows_used(), body::EndProtection{Scored(store)});
  }

  // See Shard::CountPlaces. Waits.
  void Count(Queue& queue, RowStore<B>& store, const EvictionOrder& order, const PlacePrefix& prefix,
             std::span<std::uint64_t> counts) {
    B::template Histogram<PlacePrefix::kDigits>(queue, store.rows_used(),
                                                body::NextDigit{Scored(store), order, prefix}, counts.data());
  }

  // Returns the keys of rows up to `last` that are not protected, in device memory, as a batch to be erased,
  // and sets `sums` to those of the rows. Waits. Throws std::bad_alloc.
  KeptKeys List(Queue& queue, RowStore<B>& store, const EvictionOrder& order, const EvictionPlace& last,
                EvictedSums& sums) {
    KeptKeys listed;
    listed.size = listed.most = ListInto(queue, store, order, last, false);
    listed.keys = keys_.data();
    sums = {listed.size, B::Sum(queue, listed.size, body::MixKeys{listed.keys}).low};
    return listed;
  }
  // Returns the keys of protected rows up to `last`. Waits. Throws std::bad_alloc.
  std::vector<Key> ProtectedUpTo(Queue& queue, RowStore<B>& store, const EvictionOrder& order,
                                 const EvictionPlace& last) {
    std::vector<Key> keys(ListInto(queue, store, order, last, true));
    B::CopyOut(queue, keys.data(), keys_.data(), keys.size());
    return keys;
  }

  // Frees the list. REQUIRES: it is not needed any more.
  void FreeScratch() { keys_ = {}; }

 private:
  static body::ScoredKey* Scored(RowStore<B>& store) { return store.values().scored; }

  std::uint32_t ListInto(Queue& queue, RowStore<B>& store, const EvictionOrder& order,
                         const EvictionPlace& last, bool are_protected) {
    body::ListUpTo list{Scored(store), order, last, are_protected, nullptr};
    const std::uint32_t count = B::ForEachNumbered(queue, store.rows_used(), list);
    if (std::uint64_t{count} * kBytesARow > B::MemoryForTables(queue)) throw std::bad_alloc();
    list.keys = keys_.Reserve(queue, count);
    return count == 0 ? 0 : B::ForEachNumbered(queue, store.rows_used(), list);
  }

  // Erasing a listed row takes its key twice, and its row once.
  static constexpr std::uint64_t kBytesARow = 2 * sizeof(Key) + sizeof(RowIndex);

  typename B::template Scratch<Key> keys_;
};

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_EVICTION_INL_
