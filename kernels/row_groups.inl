// RowGroups: a batch's occurrences of keys, grouped by row (body/update.h: segments).
//
// The groups own the sorted arrays, but for one array of each pair that a sort works in: the rows are the
// caller's, who gives them up, and the items lie in the caller's `spare`. All stay as they are until the next
// call. Thread-safety: the queue's. All arrays are in device memory.
#ifndef SLOTWISE_KERNELS_ROW_GROUPS_INL_
#define SLOTWISE_KERNELS_ROW_GROUPS_INL_

#include <bit>
#include <cstdint>

#include "kernels/backend/concept.h"
#include "kernels/body/update.h"
#include "kernels/sharder.inl"

namespace slotwise {

// Segments whose number the host has not asked for yet: segments.segments is not set.
struct Groups {
  body::Segments segments;
  const std::uint32_t* size;  // one: how many segments there are
};

template <Backend B>
class RowGroups {
 public:
  using Queue = typename B::Queue;
  using Words = typename B::template Scratch<std::uint32_t>;

  // Rows to be sorted: `rows` is overwritten. All are below `rows_used`.
  struct RowsToSort {
    RowIndex* rows;  // [kept keys]
    std::uint32_t rows_used;
  };

  // Segments whose items are bags: each occurrence's, or that bag's place in `places` if those are not null.
  // REQUIRES: the host knows kept.size. Throws std::bad_alloc.
  Groups GroupBags(Queue& queue, const KeptKeys& kept, RowsToSort rows, const std::uint32_t* places,
                   Words& spare) {
    std::uint32_t* const items = spare.Reserve(queue, kept.size);
    B::ForEach(queue, kept.bags, body::ExpandBags{kept.offsets, places, items});
    return Sort(queue, kept.size, rows, items);
  }

  // Segments whose items are each occurrence's place among the kept keys; bag_of() says which bag a place is
  // in. REQUIRES: as above. Throws std::bad_alloc.
  Groups GroupPlaces(Queue& queue, const KeptKeys& kept, RowsToSort rows, Words& spare) {
    std::uint32_t* const items = spare.Reserve(queue, kept.size);
    std::uint32_t* const bag_of = bag_of_.Reserve(queue, kept.size);
    B::ForEach(queue, kept.bags, body::ExpandBags{kept.offsets, nullptr, bag_of});
    B::ForEach(queue, kept.size, body::CountUp{items});
    return Sort(queue, kept.size, rows, items);
  }

  // [kept keys] REQUIRES: GroupPlaces.
  const std::uint32_t* bag_of() { return bag_of_.data(); }

  // Gives back what the groups take. REQUIRES: they are not needed any more.
  void FreeScratch() {
    sorted_rows_ = {};
    sorted_items_ = {};
    segment_begin_ = {};
    bag_of_ = {};
  }

 private:
  Groups Sort(Queue& queue, std::uint32_t n, RowsToSort rows, std::uint32_t* items) {
    PairBuffers pairs{{reinterpret_cast<std::uint32_t*>(rows.rows), sorted_rows_.Reserve(queue, n)},
                      {items, sorted_items_.Reserve(queue, n)}};
    std::uint32_t* const begin = segment_begin_.Reserve(queue, n);
    B::SortPairs(queue, pairs, n, static_cast<std::uint32_t>(std::bit_width(rows.rows_used)));
    const body::Segments segments{pairs.keys[pairs.current], pairs.values[pairs.current], begin, 0, n};
    std::uint32_t* const size = size_.Reserve(queue, 1);
    B::SelectIndices(queue, n, begin, size, body::BeginsSegment{segments.rows});
    return {segments, size};
  }

  Words sorted_rows_;
  Words sorted_items_;
  Words segment_begin_;
  Words bag_of_;
  Words size_;  // one
};

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_ROW_GROUPS_INL_
