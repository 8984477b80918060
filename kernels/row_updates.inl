// RowUpdates changes rows by the gradients of bags, or by imported values.
//
// Occurrences are grouped by row (RowGroups), long groups are summed (LongSums), then the optimizer is
// applied once a row. All that may fail for want of memory comes before the first row changes.
// Thread-safety: same as the queue. All arrays are in device memory.
#ifndef SLOTWISE_KERNELS_ROW_UPDATES_INL_
#define SLOTWISE_KERNELS_ROW_UPDATES_INL_

#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/backend/concept.h"
#include "kernels/body/bloom_counter.h"
#include "kernels/body/long_sums.h"
#include "kernels/body/pool.h"
#include "kernels/body/update.h"
#include "kernels/prepared_batch.inl"
#include "kernels/row_launches.inl"
#include "kernels/row_store.inl"
#include "kernels/shard.h"

namespace slotwise {

// Segments whose number the host has not asked for yet: segments.segments is not set.
struct Groups {
  body::Segments segments;
  const std::uint32_t* size;  // [1] how many segments there are
};

// RowGroups groups a batch's occurrences of keys by row, into segments (body/update.h). A sort needs two
// buffers for rows and two for items. The groups own one of each; the others are the batch's rows, which are
// overwritten, and the caller's `spare`. All stay as they are until the next call.
template <Backend B>
class RowGroups {
 public:
  using Queue = typename B::Queue;
  using Words = typename B::template Scratch<std::uint32_t>;

  // Rows to be sorted: `rows` is overwritten. All are below `rows_used`, but for those of `rowless`
  // occurrences, which have none and are in no segment.
  struct RowsToSort {
    RowIndex* rows;  // [kept keys]
    std::uint32_t rows_used;
    std::uint32_t rowless;
  };

  // Returns segments whose items are each occurrence's bag, or that bag's place in `places` if it is not
  // null. REQUIRES: the host knows kept.size. Throws std::bad_alloc.
  Groups GroupBags(Queue& queue, const KeptKeys& kept, RowsToSort rows, const std::uint32_t* places,
                   Words& spare) {
    std::uint32_t* const items = spare.Reserve(queue, kept.size);
    B::ForEach(queue, kept.bags, body::ExpandBags{kept.offsets, places, items});
    return Sort(queue, kept.size, rows, items);
  }

  // Returns segments whose items are each occurrence's place among the kept keys; bag_of() says which bag a
  // place is in. REQUIRES: as above. Throws std::bad_alloc.
  Groups GroupPlaces(Queue& queue, const KeptKeys& kept, RowsToSort rows, Words& spare) {
    std::uint32_t* const items = spare.Reserve(queue, kept.size);
    std::uint32_t* const bag_of = bag_of_.Reserve(queue, kept.size);
    B::ForEach(queue, kept.bags, body::ExpandBags{kept.offsets, nullptr, bag_of});
    B::ForEach(queue, kept.size, body::CountUp{items});
    return Sort(queue, kept.size, rows, items);
  }

  // [kept keys] REQUIRES: GroupPlaces.
  const std::uint32_t* bag_of() { return bag_of_.data(); }

  // Frees the arrays of the groups. REQUIRES: they are not needed any more.
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
    if (rows.rowless > 0) B::ForEach(queue, n, body::PutRowlessLast{rows.rows, RowIndex{rows.rows_used}});
    B::SortPairs(queue, pairs, n, static_cast<std::uint32_t>(std::bit_width(rows.rows_used)));
    n -= rows.rowless;
    const body::Segments segments{pairs.keys[pairs.current], pairs.values[pairs.current], begin, 0, n};
    std::uint32_t* const size = size_.Reserve(queue, 1);
    B::SelectIndices(queue, n, begin, size, body::BeginsSegment{segments.rows});
    return {segments, size};
  }

  Words sorted_rows_;
  Words sorted_items_;
  Words segment_begin_;
  Words bag_of_;
  Words size_;  // [1]
};

// LongSums sums segments that are longer than a block, level by level (body/long_sums.h). It owns the list of
// long segments and the arrays of the levels, which last until the next call.
template <Backend B>
class LongSums {
 public:
  using Queue = typename B::Queue;
  using Words = typename B::template Scratch<std::uint32_t>;

  struct Sums {
    body::Segments segments;             // all
    const std::uint32_t* long_segments;  // [count] those that are longer than body::kSumBlock, in order
    std::uint32_t count;
    body::BlockSums sums;  // of each long segment, one item
  };

  // Begins to find those of `groups` that are longer than body::kSumBlock. Does not wait. Throws
  // std::bad_alloc.
  void Begin(Queue& queue, const Groups& groups) {
    const std::uint32_t n = groups.segments.occurrences;
    std::uint32_t* const list = long_segments_.Reserve(queue, n);
    std::uint32_t* const list_size = long_segments_size_.Reserve(queue, 1);
    B::SelectIndices(queue, n, list, list_size, body::IsLong{groups.segments, groups.size});
    B::Ask(queue, body::CountSegments{groups.size, list_size}, counts_);
    segments_ = groups.segments;
  }

  // REQUIRES: Begin. Waits until the long segments are counted, and begins to plan their blocks. Throws
  // std::bad_alloc.
  void Plan(Queue& queue) {
    const auto counts = counts_.Get(queue);
    segments_ = segments_.Of(counts.all);
    count_ = counts.are_long;
    if (count_ == 0) return;
    most_levels_ = body::LevelsOf(segments_.occurrences);
    const std::uint32_t all = most_levels_ * count_;
    std::uint32_t* const offsets = block_offsets_.Reserve(queue, all + std::size_t{1});
    B::ForEach(queue, all, body::CountBlocks{{segments_, long_segments_.data()}, count_, offsets});
    B::ExclusiveScan(queue, offsets, all, offsets);
    B::Ask(queue, body::FindLevels{offsets, count_, most_levels_}, levels_);
  }

  // REQUIRES: Plan. Returns the sums of the long segments over the items that `source` returns for
  // occurrences. Waits for the plan, if there are long segments. Throws std::bad_alloc.
  template <class Source>
  Sums Sum(Queue& queue, Source source, std::uint32_t dim) {
    body::BlockSums sums{nullptr, dim};
    if (count_ > 0) sums = SumLevels(queue, source, dim);
    return {segments_, long_segments_.data(), count_, sums};
  }

  // Frees the arrays of the sums. REQUIRES: they are not needed any more.
  void FreeScratch() {
    long_segments_ = {};
    block_offsets_ = {};
    sums_ = {};
  }

 private:
  // Sums level by level, until every long segment is one item.
  template <class Source>
  body::BlockSums SumLevels(Queue& queue, Source source, std::uint32_t dim) {
    const body::Occurrences occurrences{segments_, long_segments_.data()};
    const std::uint32_t count = count_;
    const std::uint32_t* const offsets = block_offsets_.data();
    const auto levels = levels_.Get(queue);
    const auto blocks_of = [&](std::uint32_t level) { return levels.first[level + 1] - levels.first[level]; };
    std::uint32_t last = 0;  // the level on which each segment is one block
    while (blocks_of(last) != count) ++last;

    float* const sums = sums_.Reserve(queue, std::size_t{levels.first[last + 1]} * dim);
    const auto blocks = [&](std::uint32_t level) {
      return body::Blocks{offsets + std::size_t{level} * count};
    };
    B::ForEachTile(
        queue, blocks_of(0), dim,
        body::SumBlocks<body::Occurrences, Source>{occurrences, source, blocks(0), 0, count, dim, sums});
    for (std::uint32_t level = 1; level <= last; ++level) {
      B::ForEachTile(
          queue, blocks_of(level), dim,
          body::SumBlocks<body::Blocks, body::BlockSums>{
              blocks(level - 1), {sums, dim}, blocks(level), levels.first[level], count, dim, sums});
    }
    return {sums + std::size_t{levels.first[last]} * dim, dim};
  }

  body::Segments segments_{};
  std::uint32_t count_ = 0;  // the number of long segments
  std::uint32_t most_levels_ = 0;
  typename B::template Answer<body::CountSegments::Counts> counts_;
  typename B::template Answer<body::FindLevels::Levels> levels_;
  Words long_segments_;
  Words long_segments_size_;                  // [1]
  Words block_offsets_;                       // [levels * long segments + 1]
  typename B::template Scratch<float> sums_;  // [blocks of all levels][dim]
};

// Rows of gradients, and the row of each bag.
struct Gradients {
  const float* rows;            // [rows][dim]
  const std::uint32_t* places;  // [bags], or null: the bag itself
};

template <Backend B>
class RowUpdates {
 public:
  using Queue = typename B::Queue;
  using Words = typename B::template Scratch<std::uint32_t>;

  explicit RowUpdates(const TableOptions& options)
      : optimizer_(options.optimizer),
        rounds_by_chance_(options.row_dtype != DataType::kFloat32 &&
                          options.rounding == Rounding::kStochastic),
        seed_(options.initializer.seed),
        order_(EvictionOrder::Of(options, 0)),
        combiner_(options.combiner),
        dim_(options.dim) {}

  // From now on scores rows as a table of these options does.
  void Alter(const TableOptions& options) { order_ = EvictionOrder::Of(options, 0); }

  // Groups the occurrences of each row. `places` are those of the gradients that Apply will get. Spends the
  // batch. Overwrites `spare`, which the queue reads until Apply's work is done. Does not wait. Throws
  // std::bad_alloc.
  void Group(Queue& queue, PreparedBatch<B>& batch, RowStore<B>& store, const std::uint32_t* places,
             Words& spare) {
    const typename RowGroups<B>::RowsToSort rows{batch.rows(), store.rows_used(), batch.refused()};
    const KeptKeys& kept = batch.kept();
    if (HasRows(batch)) {
      const Groups groups = ItemsAreBags(kept) ? groups_.GroupBags(queue, kept, rows, places, spare)
                                               : groups_.GroupPlaces(queue, kept, rows, spare);
      long_sums_.Begin(queue, groups);
      items_ = groups.segments.items;
    }
    grouped_ = batch.number();
    planned_ = false;
  }
  // Returns whether the batch's occurrences are grouped.
  bool IsGrouped(const PreparedBatch<B>& batch) const { return grouped_ == batch.number(); }

  // REQUIRES: Group of this batch. Waits, and begins to plan the sums of long groups; does nothing the second
  // time. Throws std::bad_alloc.
  void Plan(Queue& queue, const PreparedBatch<B>& batch) {
    if (!planned_ && HasRows(batch)) long_sums_.Plan(queue);
    planned_ = true;
  }

  // REQUIRES: Group and Plan of this batch. See GroupedBatch::Update. Waits for the plan.
  void Apply(Queue& queue, PreparedBatch<B>& batch, RowStore<B>& store, const Gradients& gradients,
             const StepScalars& scalars) {
    grouped_ = 0;
    const KeptKeys& kept = batch.kept();
    refused_keys_ += batch.refused();
    if (!HasRows(batch)) return;
    step_keys_ += kept.size - batch.refused();
    if (ItemsAreBags(kept)) {
      return ApplyOptimizer(queue, body::BagGradients{gradients.rows, items_, dim_}, scalars, store);
    }
    ApplyOptimizer(queue,
                   body::ScaledGradients{gradients.rows, items_, groups_.bag_of(), kept.weights,
                                         Divides(combiner_) ? WriteDivisors(queue, kept.batch) : nullptr,
                                         gradients.places, dim_},
                   scalars, store);
  }

  // Count, over all steps, keys, each as often as it occurred, and rows that a step updated.
  std::uint64_t step_keys() const { return step_keys_; }
  std::uint64_t step_rows() const { return step_rows_; }
  // Counts keys, over all steps, each as often as it occurred, that got no row because of the admission.
  std::uint64_t refused_keys() const { return refused_keys_; }

  // See InsertedBatch::Assign. Rows without a score get `score`. Spends the batch. Overwrites `spare`, as
  // Group does.
  void Assign(Queue& queue, PreparedBatch<B>& batch, RowStore<B>& store, const float* values,
              std::uint32_t columns, std::uint64_t score, Words& spare) {
    const typename RowGroups<B>::RowsToSort rows{batch.rows(), store.rows_used(), 0};
    const KeptKeys& kept = batch.kept();
    if (kept.size == 0) return;
    const Groups groups = groups_.GroupBags(queue, kept, rows, nullptr, spare);
    const body::Segments segments = groups.segments.Of(B::Get(queue, groups.size));
    B::ForEachTile(queue, segments.segments, dim_,
                   body::AssignRows{segments, values, columns, store.initial_state(), score, store.values()});
    if (store.changes() != nullptr) store.changes()->Mark(queue, segments);
  }

  // See InsertedBatch::Touch. Spends the batch. Overwrites `spare`, as Group does.
  void Touch(Queue& queue, PreparedBatch<B>& batch, RowStore<B>& store, std::uint64_t step, Words& spare) {
    const typename RowGroups<B>::RowsToSort rows{batch.rows(), store.rows_used(), 0};
    const KeptKeys& kept = batch.kept();
    if (kept.size == 0) return;
    const Groups groups = groups_.GroupBags(queue, kept, rows, nullptr, spare);
    TouchRows(queue, groups.segments.Of(B::Get(queue, groups.size)), step, store);
  }

  // See InsertedBatch::RaiseCounters. Spends the batch. Overwrites `spare`, as Group does.
  void RaiseCounters(Queue& queue, PreparedBatch<B>& batch, RowStore<B>& store, const CounterRaises& raises,
                     Words& spare) {
    const typename RowGroups<B>::RowsToSort rows{batch.rows(), store.rows_used(), 0};
    const KeptKeys& kept = batch.kept();
    if (kept.size == 0) return;
    const Groups groups = groups_.GroupBags(queue, kept, rows, nullptr, spare);
    const body::Segments segments = groups.segments.Of(B::Get(queue, groups.size));
    const body::CounterBlocks<typename B::Atomics> blocks{store.values().template As<float>()};
    B::ForEach(queue, segments.occurrences,
               body::RaiseCounters<typename B::Atomics>{segments, raises.of_keys, blocks});
    B::ForEach(queue, segments.segments,
               body::TallyBlocks<typename B::Atomics>{segments, blocks, raises.window});
    if (store.changes() != nullptr) store.changes()->Mark(queue, segments);
  }

  // Frees the scratch of updates. REQUIRES: no update is under way.
  void FreeScratch() {
    grouped_ = 0;
    groups_.FreeScratch();
    long_sums_.FreeScratch();
    divisors_ = {};
  }

 private:
  static bool HasRows(const PreparedBatch<B>& batch) { return batch.kept().size > batch.refused(); }

  // Gives the segments' rows the scores of a step that touches them, and marks them as changed.
  void TouchRows(Queue& queue, const body::Segments& segments, std::uint64_t step, RowStore<B>& store) {
    body::ScoredKey* const scored = store.values().scored;
    if (scored != nullptr) {
      EvictionOrder order = order_;
      order.now = step;
      B::ForEach(queue, segments.segments, body::TouchRows{segments, scored, order});
    }
    if (store.changes() != nullptr) store.changes()->Mark(queue, segments);
  }

  // Returns whether each occurrence's gradient is that of its bag.
  bool ItemsAreBags(const KeptKeys& kept) const { return !Divides(combiner_) && kept.weights == nullptr; }

  body::RoundingOfStep RoundingOf(const body::RowsRef& rows) const {
    if (!rounds_by_chance_) return {};
    if (rows.scored == nullptr) return {reinterpret_cast<const std::uint64_t*>(rows.keys), 1, seed_};
    return {&rows.scored->key, sizeof(body::ScoredKey) / sizeof(Key), seed_};
  }

  // Returns the divisors of all ranks' bags.
  const float* WriteDivisors(Queue& queue, const BatchView& batch) {
    const float* const weights = batch.weights.empty() ? nullptr : batch.weights.data();
    float* const divisors = divisors_.Reserve(queue, batch.bags());
    B::ForEach(queue, batch.bags(),
               body::WriteDivisors{body::DivisorOf(combiner_, batch.offsets.data(), weights), divisors});
    return divisors;
  }

  // Sums long segments first: that takes memory, and if there is none, no row may have changed.
  template <class Source>
  void ApplyOptimizer(Queue& queue, Source source, const StepScalars& scalars, RowStore<B>& store) {
    const auto sums = long_sums_.Sum(queue, source, dim_);
    step_rows_ += sums.segments.segments;
    const GroupedGradients grouped{sums.segments, source, sums.long_segments, sums.count, sums.sums};
    const body::RoundingOfStep rounding = RoundingOf(store.values());
    WithRows(store.values(), [&]<class Element>(const body::RowsOf<Element>& rows) {
      RowLaunches<B, Element>::ApplyOptimizer(queue, rows, optimizer_, scalars, grouped, rounding);
    });
    TouchRows(queue, sums.segments, scalars.step, store);
  }

  const OptimizerOptions optimizer_;
  const bool rounds_by_chance_;
  const std::uint64_t seed_;  // of chance
  EvictionOrder order_;       // at no step
  const Combiner combiner_;
  const std::uint32_t dim_;
  RowGroups<B> groups_;
  LongSums<B> long_sums_;
  const std::uint32_t* items_ = nullptr;  // of the groups
  std::uint64_t grouped_ = 0;             // the number of the batch that is grouped; 0 if none is
  bool planned_ = false;                  // whether its long sums are planned
  std::uint64_t step_keys_ = 0;
  std::uint64_t step_rows_ = 0;
  std::uint64_t refused_keys_ = 0;
  typename B::template Scratch<float> divisors_;  // [bags of all ranks]
};

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_ROW_UPDATES_INL_
