// What leaves a shard beside batches: the list of its keys, rows by key, and the digest.
//
// Each call takes the scratch that it needs and gives it back; each waits for the queue. Throws
// std::bad_alloc. Thread-safety: the queue's.
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
#include "kernels/body/key_launches.h"
#include "kernels/body/rows.h"
#include "kernels/row_store.inl"
#include "kernels/selection.inl"
#include "kernels/shard.h"

namespace slotwise {

// Every key that has a row, in no order.
template <Backend B>
std::vector<Key> ExportKeys(typename B::Queue& queue, RowStore<B>& store) {
  // A key a row; rows of erased keys keep kFree, which is put in by hand if it is a key.
  const std::uint32_t used = store.rows_used();
  const body::HashTableRef table = store.hash_table();
  typename B::template Scratch<Key> by_row;
  typename B::template Scratch<Key> live;
  typename B::template Scratch<std::uint32_t> live_size;
  B::ForEach(queue, used, body::FillKeys{by_row.Reserve(queue, used)});
  B::ForEach(queue, table.Cells(), body::CopyKeyOfRow{table, by_row.data()});
  B::SelectKeys(queue, by_row.data(), used, live.Reserve(queue, used), live_size.Reserve(queue, 1),
                body::KeyIsNotFree{});
  const std::uint32_t count = B::Get(queue, live_size.data());
  std::vector<Key> keys(count);
  B::CopyOut(queue, keys.data(), live.data(), count);
  if (count < store.rows()) keys.push_back(Key{body::kFree});
  return keys;
}

// The records of those of `keys`, in host memory, that have a row, in their order.
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

// The sums of two hashes over all rows.
template <Backend B>
DigestSums DigestOf(typename B::Queue& queue, RowStore<B>& store) {
  return B::Sum(queue, store.hash_table().Cells(), body::HashCell{store.hash_table(), store.values()});
}

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_EXPORT_INL_
