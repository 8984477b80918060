// These functions export from a shard, beside batches: the list of its keys, rows by key, and the digest.
//
// Each call takes the scratch that it needs and gives it back; each waits for the queue. Throws
// std::bad_alloc. Thread-safety: same as the queue.
#ifndef SLOTWISE_KERNELS_EXPORT_INL_
#define SLOTWISE_KERNELS_EXPORT_INL_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend/concept.h"
#include "kernels/body/digest.h"
#include "kernels/body/hash_table.h"
#include "kernels/body/rows.h"
#include "kernels/row_store.inl"
#include "kernels/selection.inl"
#include "kernels/shard.h"

namespace slotwise {

// Returns every key that has a row, in no order.
template <Backend B>
std::vector<Key> ExportKeys(typename B::Queue& queue, RowStore<B>& store) {
  typename B::template Scratch<Key> listed;
  std::vector<Key> keys;
  keys.reserve(store.rows());
  store.ForEachRunOfCells([&](const body::SomeCells& cells, std::uint32_t n) {
    const std::uint32_t count = B::ForEachNumbered(queue, n, body::ListKeys{cells, listed.Reserve(queue, n)});
    const std::size_t before = keys.size();
    keys.resize(before + count, Key{0});
    B::CopyOut(queue, keys.data() + before, listed.data(), count);
  });
  return keys;
}

// Returns the records of those of `keys`, in host memory, that have a row, in their order.
template <Backend B>
RowRecords ExportRows(typename B::Queue& queue, RowStore<B>& store, std::span<const Key> keys) {
  const auto n = static_cast<std::uint32_t>(keys.size());
  const body::RowsRef rows = store.values();
  typename B::template Scratch<Key> wanted;
  typename B::template Scratch<RowIndex> row_of;
  typename B::template Scratch<std::uint32_t> found;
  typename B::template Scratch<float> records;
  Selection<B> selection;
  B::CopyIn(queue, wanted.Reserve(queue, n), keys.data(), n);
  store.Bring(queue, wanted.data(), n);
  B::ForEach(queue, n, body::FindRows{store.hash_table(), wanted.data(), row_of.Reserve(queue, n)});
  const std::uint32_t count =
      selection.Select(queue, n, found.Reserve(queue, n), body::RowIsThere{row_of.data()});
  const std::size_t floats = std::size_t{count} * rows.floats;
  B::ForEachTile(queue, count, rows.dim,
                 body::CopyRecords{rows, row_of.data(), found.data(), records.Reserve(queue, floats)});

  RowRecords out{std::vector<Key>(count), std::vector<float>(floats)};
  std::vector<std::uint32_t> places(count);
  B::CopyOut(queue, places.data(), found.data(), count);
  B::CopyOut(queue, out.records.data(), records.data(), floats);
  std::ranges::transform(places, out.keys.begin(), [&](std::uint32_t place) { return keys[place]; });
  return out;
}

// Returns the sums of two hashes over all rows.
template <Backend B>
DigestSums DigestOf(typename B::Queue& queue, RowStore<B>& store) {
  DigestSums sums;
  store.ForEachPart([&](const body::SomeCells& cells) {
    const DigestSums part = B::Sum(queue, cells.size(), body::HashCell{cells, store.values()});
    sums.low += part.low;
    sums.high += part.high;
  });
  return sums;
}

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_EXPORT_INL_
