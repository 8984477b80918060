// The shard, once for every backend: which launches make up each call of shard.h, and who owns the memory.
//
// Included by shard_cpu.cc and shard_cuda.cu alone.
#ifndef SLOTWISE_KERNELS_SHARD_INL_
#define SLOTWISE_KERNELS_SHARD_INL_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend/concept.h"
#include "kernels/body/digest.h"
#include "kernels/body/hash_table.h"
#include "kernels/body/keep_mine.h"
#include "kernels/body/optimizer.h"
#include "kernels/body/pool.h"
#include "kernels/body/rows.h"
#include "kernels/body/update.h"
#include "kernels/shard.h"

namespace slotwise {

// Keys and rows of one shard: a hash table that grows by rehash, and rows that grow in place.
template <Backend B>
class Table {
 public:
  using Queue = typename B::Queue;
  using Atomics = typename B::Atomics;

  // REQUIRES: Validate(options) is OK. Throws std::bad_alloc.
  Table(Queue& queue, const TableOptions& options, std::uint64_t initial_rows)
      : max_rows_(std::min(options.max_rows, kMaxRowsPerShard)),
        options_(options),
        stride_(options.dim + StateFloats(options.optimizer.kind, options.dim)),
        rows_(queue, max_rows_ * stride_) {
    B::Put(queue, rows_used_on_device_.Reserve(queue, 1), 0);
    const std::uint64_t rows = std::clamp<std::uint64_t>(initial_rows, kFirstRows, kMaxRowsPerShard);
    GrowSlots(queue, rows);
    rows_.Grow(std::min(rows, max_rows_) * stride_);
  }

  std::uint32_t rows() const { return rows_used_; }
  std::uint64_t max_rows() const { return max_rows_; }
  body::TableRef slots() { return slots_; }
  body::RowsRef values() const { return {rows_.data(), options_.dim, stride_}; }

  ShardUsage Usage() const {
    return {rows_used_, slots_.mask + 1, slots_.Slots() * sizeof(body::Slot) + rows_.size() * sizeof(float)};
  }

  bool HasRoomFor(std::uint64_t more) const {
    return (rows_used_ + more) * stride_ <= rows_.size() && SlotsFor(rows_used_ + more) <= slots_.mask + 1;
  }

  // Throws std::bad_alloc, and then nothing has changed. REQUIRES: rows() + more <= max_rows().
  void MakeRoomFor(Queue& queue, std::uint64_t more) {
    const std::uint64_t rows = rows_used_ + more;
    if (rows * stride_ > rows_.size()) {
      const std::uint64_t ahead = std::min(max_rows_, std::max<std::uint64_t>(rows, 2ULL * rows_used_));
      rows_.Grow(ahead * stride_);
    }
    if (SlotsFor(rows) > slots_.mask + 1) GrowSlots(queue, rows);
  }

  // Scratch for Add of n keys. Throws std::bad_alloc.
  void ReserveAdd(Queue& queue, std::uint32_t n) {
    slot_of_.Reserve(queue, n);
    new_keys_.Reserve(queue, n);
  }

  // Gives each distinct key of keys[absent[0 .. n)] a row, and writes the rows of all of them.
  // REQUIRES: HasRoomFor the distinct ones; ReserveAdd(n); none of them has a row.
  void Add(Queue& queue, const Key* keys, const std::uint32_t* absent, std::uint32_t n, RowIndex* rows) {
    std::uint64_t* slot_of = slot_of_.data();
    Key* new_keys = new_keys_.data();
    std::uint32_t* used = rows_used_on_device_.data();
    B::ForEach(queue, n, body::AddKeys<Atomics>{slots_, keys, absent, slot_of, used, rows_used_, new_keys});
    B::ForEach(queue, n, body::ReadAddedRows{slots_, absent, slot_of, rows});
    const RowIndex first_new{rows_used_};
    rows_used_ = B::Get(queue, used);
    const float state = InitialState(options_.optimizer);
    B::ForEachTile(queue, rows_used_ - Value(first_new), options_.dim,
                   body::WriteNewRows{values(), options_.initializer, state, first_new, new_keys});
  }

  // How many distinct keys there are among keys[absent[0 .. n)].
  std::uint32_t CountDistinct(Queue& queue, const Key* keys, const std::uint32_t* absent, std::uint32_t n) {
    typename B::template Scratch<body::Slot> memory;
    typename B::template Scratch<std::uint32_t> counter;
    const body::TableRef scratch = FreeTable(queue, memory, SlotsFor(n));
    std::uint32_t* count = counter.Reserve(queue, 1);
    B::Put(queue, count, 0);
    B::ForEach(queue, n, body::CountKeys<Atomics>{scratch, keys, absent, count});
    return B::Get(queue, count);
  }

 private:
  static constexpr std::uint64_t kFirstRows = 1024;

  static float InitialState(const OptimizerOptions& optimizer) {
    const bool accumulates =
        optimizer.kind == OptimizerKind::kAdaGrad || optimizer.kind == OptimizerKind::kRowWiseAdaGrad;
    return accumulates ? optimizer.initial_accumulator : 0.0F;
  }

  // At most every second slot is taken, so chains stay short.
  static std::uint64_t SlotsFor(std::uint64_t rows) { return std::bit_ceil(2 * rows); }

  static body::TableRef FreeTable(Queue& queue, typename B::template Scratch<body::Slot>& memory,
                                  std::uint64_t slots) {
    const body::TableRef table{memory.Reserve(queue, slots + 1), slots - 1};
    B::ForEach(queue, table.Slots(), body::FreeSlots{table});
    return table;
  }

  void GrowSlots(Queue& queue, std::uint64_t rows) {
    typename B::template Scratch<body::Slot> memory;
    const body::TableRef larger = FreeTable(queue, memory, SlotsFor(rows));
    if (slots_.slots != nullptr) B::ForEach(queue, slots_.Slots(), body::Rehash<Atomics>{slots_, larger});
    slot_memory_ = std::move(memory);
    slots_ = larger;
  }

  std::uint64_t max_rows_;
  TableOptions options_;
  std::uint32_t stride_;
  std::uint32_t rows_used_ = 0;
  body::TableRef slots_{nullptr, 0};
  typename B::template Scratch<body::Slot> slot_memory_;
  typename B::template Growing<float> rows_;
  typename B::template Scratch<std::uint32_t> rows_used_on_device_;
  typename B::template Scratch<std::uint64_t> slot_of_;
  typename B::template Scratch<Key> new_keys_;
};

// A prepared batch: the keys that are this rank's, and their rows.
template <Backend B>
struct Prepared {
  const std::uint32_t* offsets = nullptr;  // [bags + 1] into keys and rows
  const Key* keys = nullptr;
  RowIndex* rows = nullptr;
  std::uint32_t bags = 0;
  std::uint32_t size = 0;    // keys
  std::uint32_t absent = 0;  // of them, those without a row
};

template <Backend B>
class ShardOn final : public Shard {
 public:
  using Queue = typename B::Queue;
  template <class T>
  using Scratch = typename B::template Scratch<T>;

  // Throws std::bad_alloc.
  ShardOn(Queue& queue, const TableOptions& options, const ShardPlace& place)
      : queue_(queue),
        options_(options),
        ranks_(place.ranks),
        rank_(static_cast<std::uint16_t>(Value(place.rank))),
        table_(queue, options, options.initial_rows / static_cast<std::uint64_t>(place.ranks)) {
    B::CopyIn(queue, buckets_.Reserve(queue, kBuckets), place.bucket_map.data(), kBuckets);
  }

  Result<NewRows> Prepare(const BatchView& batch, bool insert) override {
    try {
      FindRowsOf(batch);
      return insert ? PrepareInsert() : NewRows{0, true};
    } catch (const std::bad_alloc&) {
      return ResourceExhausted("no memory for a batch of " + std::to_string(batch.keys.size()) +
                               " keys beside the " + std::to_string(table_.rows()) + " rows of this rank");
    }
  }

  std::uint64_t ExactNewRows() override {
    return prepared_.absent == 0
               ? 0
               : table_.CountDistinct(queue_, prepared_.keys, absent_.data(), prepared_.absent);
  }

  void Insert() override {
    if (prepared_.absent == 0) return;
    table_.Add(queue_, prepared_.keys, absent_.data(), prepared_.absent, prepared_.rows);
    prepared_.absent = 0;
  }

  void Pool(float* partial) override {
    B::ForEachTile(queue_, prepared_.bags, options_.dim,
                   body::PoolBags{table_.values(), prepared_.rows, prepared_.offsets, partial});
  }

  void DivideByBagSize(std::span<const std::uint32_t> offsets, float* values) override {
    if (options_.combiner == Combiner::kSum) return;
    const auto bags = static_cast<std::uint32_t>(offsets.size() - 1);
    B::ForEachTile(
        queue_, bags, options_.dim,
        body::DivideBags{offsets.data(), options_.dim, options_.combiner == Combiner::kSqrtn, values});
  }

  void Update(const float* gradients, const StepScalars& scalars) override {
    const OptimizerOptions& o = options_.optimizer;
    const float rate = scalars.learning_rate;
    switch (o.kind) {
      case OptimizerKind::kSgd:
        return UpdateWith(gradients, body::Sgd{rate});
      case OptimizerKind::kMomentum:
        return UpdateWith(gradients, body::Momentum{rate, o.momentum});
      case OptimizerKind::kNesterov:
        return UpdateWith(gradients, body::Nesterov{rate, o.momentum});
      case OptimizerKind::kAdaGrad:
        return UpdateWith(gradients, body::AdaGrad{rate, o.epsilon});
      case OptimizerKind::kRowWiseAdaGrad:
        return UpdateWith(gradients, body::RowWiseAdaGrad{rate, o.epsilon});
      case OptimizerKind::kRmsProp:
        return UpdateWith(gradients, body::RmsProp{rate, o.beta2, o.epsilon});
      case OptimizerKind::kAdam:
        return UpdateWith(gradients, body::Adam{scalars.adam_rate, o.beta1, o.beta2, o.epsilon});
      case OptimizerKind::kFtrl:
        return UpdateWith(gradients, body::Ftrl{rate, o.lambda1, o.lambda2, o.ftrl_beta});
    }
  }

  DigestSums Digest() override {
    return B::Sum(queue_, table_.slots().Slots(), body::HashSlot{table_.slots(), table_.values()});
  }

  ShardUsage Usage() const override { return table_.Usage(); }

  std::vector<ExportedRow> Export() override {
    const std::size_t rows = table_.rows();
    const std::size_t stride = table_.values().stride;
    Scratch<Key> keys_by_row;
    Key* keys_on_device = keys_by_row.Reserve(queue_, std::max<std::size_t>(rows, 1));
    B::ForEach(queue_, table_.slots().Slots(), body::CopyKeyOfRow{table_.slots(), keys_on_device});
    std::vector<Key> keys(rows);
    std::vector<float> values(rows * stride);
    B::CopyOut(queue_, keys.data(), keys_on_device, rows);
    B::CopyOut(queue_, values.data(), table_.values().data, values.size());
    std::vector<ExportedRow> out(rows);
    for (std::size_t r = 0; r < rows; ++r) {
      out[r].key = keys[r];
      out[r].values.assign(values.begin() + r * stride, values.begin() + (r + 1) * stride);
    }
    return out;
  }

 private:
  void FindRowsOf(const BatchView& batch) {
    prepared_ = {};
    prepared_.bags = batch.bags();
    if (ranks_ == 1) {
      prepared_.keys = batch.keys.data();
      prepared_.offsets = batch.offsets.data();
      prepared_.size = static_cast<std::uint32_t>(batch.keys.size());
    } else {
      KeepMine(batch);
    }
    prepared_.rows = rows_.Reserve(queue_, prepared_.size);
    B::ForEach(queue_, prepared_.size, body::FindRows{table_.slots(), prepared_.keys, prepared_.rows});
  }

  Result<NewRows> PrepareInsert() {
    prepared_.absent = B::SelectIndices(queue_, prepared_.size, absent_.Reserve(queue_, prepared_.size),
                                        body::RowIsAbsent{prepared_.rows});
    if (prepared_.absent == 0) return NewRows{0, true};
    table_.ReserveAdd(queue_, prepared_.absent);
    if (table_.HasRoomFor(prepared_.absent)) return NewRows{prepared_.absent, prepared_.absent == 1};
    // Counting repeated keys once may well show that there is room; if not, grow by what is really new.
    const std::uint64_t exact = ExactNewRows();
    if (table_.rows() + exact > kMaxRowsPerShard) {
      return ResourceExhausted("this rank holds " + std::to_string(table_.rows()) + " of at most " +
                               std::to_string(kMaxRowsPerShard) + " rows, and the batch brings it " +
                               std::to_string(exact) + " new keys");
    }
    // Past max_rows no room is made: the ranks, who add their rows up, will refuse the batch.
    if (table_.rows() + exact <= table_.max_rows()) table_.MakeRoomFor(queue_, exact);
    return NewRows{exact, true};
  }

  void KeepMine(const BatchView& batch) {
    const auto keys = static_cast<std::uint32_t>(batch.keys.size());
    const body::IsMine is_mine{buckets_.data(), rank_};
    Key* mine = keys_.Reserve(queue_, keys);
    std::uint32_t* offsets = offsets_.Reserve(queue_, prepared_.bags + std::size_t{1});
    prepared_.size = B::SelectKeys(queue_, batch.keys.data(), keys, mine, is_mine);
    B::ForEach(queue_, prepared_.bags,
               body::CountMine{is_mine, batch.keys.data(), batch.offsets.data(), offsets});
    B::ExclusiveScan(queue_, offsets, prepared_.bags, offsets);
    prepared_.keys = mine;
    prepared_.offsets = offsets;
  }

  // The prepared keys as segments of equal rows: see body/update.h.
  body::Segments SortByRow() {
    const std::uint32_t n = prepared_.size;
    auto* rows = reinterpret_cast<std::uint32_t*>(prepared_.rows);
    PairBuffers pairs{{rows, sorted_rows_.Reserve(queue_, n)},
                      {bags_.Reserve(queue_, n), sorted_bags_.Reserve(queue_, n)}};
    B::ForEach(queue_, prepared_.bags, body::ExpandBags{prepared_.offsets, pairs.values[0]});
    B::SortPairs(queue_, pairs, n, static_cast<std::uint32_t>(std::bit_width(table_.rows())));
    body::Segments segments{pairs.keys[pairs.current], pairs.values[pairs.current],
                            segment_begin_.Reserve(queue_, n), 0, n};
    segments.segments =
        B::SelectIndices(queue_, n, segment_begin_.data(), body::BeginsSegment{segments.rows});
    return segments;
  }

  template <class Optimizer>
  void UpdateWith(const float* gradients, Optimizer optimizer) {
    if (prepared_.size == 0) return;
    const body::UpdateRule<Optimizer> rule{optimizer, options_.optimizer.weight_decay};
    const body::Segments segments = SortByRow();
    const body::BagGradients source{gradients, segments.bags, options_.dim};
    B::ForEachTile(queue_, segments.segments, options_.dim,
                   body::UpdateShortRows<Optimizer>{segments, source, table_.values(), rule});

    std::uint32_t* long_segments = long_segments_.Reserve(queue_, segments.segments);
    const std::uint32_t longs =
        B::SelectIndices(queue_, segments.segments, long_segments, body::IsLong{segments});
    if (longs == 0) return;
    const body::BlockSums sums = SumLongSegments(segments, source, longs);
    B::ForEachTile(queue_, longs, options_.dim,
                   body::UpdateLongRows<Optimizer>{segments, long_segments, sums, table_.values(), rule});
  }

  // Level by level, until every long segment is one item.
  body::BlockSums SumLongSegments(const body::Segments& segments, body::BagGradients source,
                                  std::uint32_t longs) {
    std::uint32_t* first = level_first_.Reserve(queue_, longs + std::size_t{1});
    std::uint32_t* length = level_length_.Reserve(queue_, longs);
    B::ForEach(queue_, longs, body::BeginLevels{segments, long_segments_.data(), first, length});
    body::BlockSums sums{nullptr, options_.dim};
    int level = 0;
    for (std::uint32_t blocks = 0; blocks != longs; ++level) {
      // This level's first and length become the next one's once its blocks are summed, hence two of each.
      std::uint32_t* block_offset = block_offset_[level % 2].Reserve(queue_, longs + std::size_t{1});
      std::uint32_t* block_count = block_count_[level % 2].Reserve(queue_, longs + std::size_t{1});
      B::ForEach(queue_, longs, body::CountBlocks{length, block_count});
      blocks = B::ExclusiveScan(queue_, block_count, longs, block_offset);
      float* out = sums_[level % 2].Reserve(queue_, std::size_t{blocks} * options_.dim);
      const body::Level items{first, length};
      if (level == 0) {
        B::ForEachTile(
            queue_, blocks, options_.dim,
            body::SumBlocks<body::BagGradients>{items, source, block_offset, longs, options_.dim, out});
      } else {
        B::ForEachTile(queue_, blocks, options_.dim,
                       body::SumBlocks<body::BlockSums>{items, sums, block_offset, longs, options_.dim, out});
      }
      sums.sums = out;
      first = block_offset;
      length = block_count;
    }
    return sums;
  }

  Queue& queue_;
  TableOptions options_;
  int ranks_;
  std::uint16_t rank_;
  Scratch<std::uint16_t> buckets_;
  Table<B> table_;
  Prepared<B> prepared_;

  // Scratch of Prepare: this rank's keys, their bags' offsets, their rows, which of them have none.
  Scratch<Key> keys_;
  Scratch<std::uint32_t> offsets_;
  Scratch<RowIndex> rows_;
  Scratch<std::uint32_t> absent_;
  // Scratch of Update: sorted occurrences, segments, and the levels of long ones' sums.
  Scratch<std::uint32_t> sorted_rows_, bags_, sorted_bags_, segment_begin_, long_segments_;
  Scratch<std::uint32_t> level_first_, level_length_, block_offset_[2], block_count_[2];
  Scratch<float> sums_[2];
};

// Device::MakeShard, for every backend.
template <Backend B>
Result<std::unique_ptr<Shard>> MakeShardOn(typename B::Queue& queue, const TableOptions& options,
                                           const ShardPlace& place) {
  if (Status status = Validate(options); !status.ok()) return status;
  try {
    return std::unique_ptr<Shard>(std::make_unique<ShardOn<B>>(queue, options, place));
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("no memory for table " + options.name.str() + " with initial_rows " +
                             std::to_string(options.initial_rows) + " and address space for max_rows " +
                             std::to_string(options.max_rows));
  }
}

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_SHARD_INL_
