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
#include <numeric>
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
#include "kernels/body/traffic.h"
#include "kernels/body/update.h"
#include "kernels/row_store.inl"
#include "kernels/shard.h"

namespace slotwise {

// A prepared batch: the keys that are this rank's, and their rows.
template <Backend B>
struct Prepared {
  BatchView batch;                         // everybody's
  const std::uint32_t* offsets = nullptr;  // [bags + 1] into keys and rows
  const Key* keys = nullptr;
  const float* weights = nullptr;  // [size], or null: all 1
  RowIndex* rows = nullptr;
  std::uint32_t bags = 0;
  std::uint32_t size = 0;                         // keys
  std::uint32_t most = 0;                         // they are no more than this, and
  const std::uint32_t* size_on_device = nullptr;  // their number is here, until the host learns it
  std::uint32_t absent = 0;  // of them, those without a row; if they were not searched for, all
  bool searched = false;
  bool traffic_is_planned = false;
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
        store_(queue, options, options.initial_rows / static_cast<std::uint64_t>(place.ranks)) {
    B::CopyIn(queue, buckets_.Reserve(queue, kBuckets), place.bucket_map.data(), kBuckets);
    selected_.Reserve(queue, 1);
    kept_.Reserve(queue, 1);
  }

  Result<NewRows> Prepare(const BatchView& batch, bool insert) override {
    try {
      Keep(batch);
      if (insert) return PrepareInsert();
      if (prepared_.size_on_device == nullptr) {
        B::ForEach(queue_, prepared_.size, FindRows());
      } else {
        B::ForEachUpTo(queue_, prepared_.most, prepared_.size_on_device, FindRows());
      }
      return NewRows{0, true};
    } catch (const std::bad_alloc&) {
      return ResourceExhausted("no memory for a batch of " + std::to_string(batch.keys.size()) +
                               " keys beside the " + std::to_string(store_.rows()) + " rows of this rank");
    }
  }

  std::uint64_t ExactNewRows() override {
    if (!prepared_.searched) Search();
    return prepared_.absent == 0
               ? 0
               : store_.CountDistinct(queue_, prepared_.keys, absent_.data(), prepared_.absent);
  }

  void Insert() override {
    std::uint32_t added = 0;
    if (prepared_.absent > 0) {
      const body::Chosen absent{prepared_.searched ? absent_.data() : nullptr};
      added = store_.Add(queue_, prepared_.keys, absent, prepared_.absent, prepared_.rows);
    }
    prepared_.absent = 0;
    mostly_new_ = 2 * std::uint64_t{added} > prepared_.size;
  }

  void Pool(Numbers partial) override { PoolTo(partial, nullptr); }

  void DivideBags(Stream& stream, std::span<const std::uint32_t> offsets, const float* weights,
                  float* values) override {
    if (!Divides()) return;
    const auto bags = static_cast<std::uint32_t>(offsets.size() - 1);
    B::ForEachTile(QueueOf(stream), bags, options_.dim,
                   body::DivideBags{DivisorOf(offsets.data(), weights), options_.dim, values});
  }

  static_assert(kMostRanksOfTraffic == body::kMostRanks);
  void PlanTraffic(std::span<const std::size_t> bags_of) override {
    if (std::exchange(prepared_.traffic_is_planned, true)) return;
    const BatchView& batch = prepared_.batch;
    const auto ranks = static_cast<std::uint32_t>(ranks_);
    const auto bags = static_cast<std::uint32_t>(bags_of[rank_]);
    const std::size_t first = std::reduce(bags_of.begin(), bags_of.begin() + rank_);
    const std::uint32_t copies = ranks * bags;
    std::uint32_t* sent = sent_places_.Reserve(queue_, prepared_.bags + std::size_t{1});
    std::uint32_t* received =
        received_places_[++plans_ % kBatchesInFlight].Reserve(queue_, copies + std::size_t{1});
    std::uint32_t* counts = traffic_counts_.Reserve(queue_, 2 * (ranks + std::size_t{1}));
    B::ForEach(queue_, prepared_.bags, body::CountBagsToSend{prepared_.offsets, sent});
    B::ExclusiveScan(queue_, sent, prepared_.bags, sent);
    B::ForEach(queue_, bags,
               body::CountBagsToReceive{buckets_.data(), batch.keys.data(), batch.offsets.data() + first,
                                        bags, ranks, received});
    B::ExclusiveScan(queue_, received, copies, received);
    body::ReadBorders read_sent{sent, counts, {}};
    body::ReadBorders read_received{received, counts + ranks + 1, {}};
    for (std::uint32_t r = 0; r < ranks; ++r) {
      read_sent.borders[r + 1] = read_sent.borders[r] + static_cast<std::uint32_t>(bags_of[r]);
      read_received.borders[r + 1] = read_received.borders[r] + bags;
    }
    B::ForEach(queue_, ranks + 1, read_sent);
    B::ForEach(queue_, ranks + 1, read_received);
    traffic_on_host_.Start(queue_, counts, 2 * (ranks + std::size_t{1}));
    copies_ = {received, bags, ranks, options_.dim};
  }

  const BagTraffic& Traffic() override {
    const std::span<const std::uint32_t> sums = traffic_on_host_.Wait();
    const auto ranks = static_cast<std::size_t>(ranks_);
    const auto differences = [ranks](std::span<const std::uint32_t> borders) {
      std::vector<std::size_t> counts(ranks);
      for (std::size_t r = 0; r < ranks; ++r) counts[r] = borders[r + 1] - borders[r];
      return counts;
    };
    traffic_ = {differences(sums.first(ranks + 1)), differences(sums.last(ranks + 1))};
    return traffic_;
  }

  void PoolToSend(Numbers partial) override { PoolTo(partial, sent_places_.data()); }

  void AddReceived(Stream& stream, ConstNumbers received, float* sums) override {
    WithElements(received, [&]<class T>(const T* elements) {
      B::ForEachTile(QueueOf(stream), copies_.bags, options_.dim,
                     body::AddPartialSums<T>{copies_, elements, sums});
    });
  }

  void GradientsToSend(const float* gradients, float* sent) override {
    B::ForEachTile(queue_, copies_.bags, options_.dim, body::CopyGradients{copies_, gradients, sent});
  }

  void Update(const float* gradients, const StepScalars& scalars) override {
    UpdateBy({gradients, nullptr}, scalars);
  }

  void UpdateFromReceived(const float* received, const StepScalars& scalars) override {
    UpdateBy({received, sent_places_.data()}, scalars);
  }

  void Assign(const float* values, std::uint32_t columns) override {
    if (prepared_.size == 0) return;
    const body::Segments segments = SortByRow(nullptr, false);
    B::ForEachTile(queue_, segments.segments, options_.dim,
                   body::AssignRows{segments, values, columns, store_.initial_state(), store_.values()});
  }

  Status PrepareErase() override {
    LearnSize();
    try {
      store_.ReserveErase(prepared_.size);
      return {};
    } catch (const std::bad_alloc&) {
      return ResourceExhausted("no memory to remember the rows of " + std::to_string(prepared_.size) +
                               " erased keys");
    }
  }

  std::uint64_t Erase() override { return store_.Erase(queue_, prepared_.keys, prepared_.size); }

  DigestSums Digest() override {
    return B::Sum(queue_, store_.table().Cells(), body::HashCell{store_.table(), store_.values()});
  }

  ShardUsage Usage() const override { return store_.Usage(); }

  std::vector<Key> Keys() override {
    // A key a row; rows of erased keys keep kFree, which is put in by hand if it is a key.
    const std::uint32_t used = store_.rows_used();
    Scratch<Key> by_row;
    Scratch<Key> live;
    const body::TableRef table = store_.table();
    B::ForEach(queue_, used, body::FillKeys{by_row.Reserve(queue_, used)});
    B::ForEach(queue_, table.Cells(), body::CopyKeyOfRow{table, by_row.data()});
    B::SelectKeys(queue_, by_row.data(), used, live.Reserve(queue_, used), selected_.data(),
                  body::KeyIsNotFree{});
    const std::uint32_t count = B::Get(queue_, selected_.data());
    std::vector<Key> keys(count);
    B::CopyOut(queue_, keys.data(), live.data(), count);
    if (count < store_.rows()) keys.push_back(Key{body::kFree});
    return keys;
  }

  RowRecords Read(std::span<const Key> keys) override {
    const auto n = static_cast<std::uint32_t>(keys.size());
    const body::RowsRef rows = store_.values();
    Scratch<Key> wanted;
    Scratch<RowIndex> row_of;
    Scratch<std::uint32_t> found;
    Scratch<float> records;
    B::CopyIn(queue_, wanted.Reserve(queue_, n), keys.data(), n);
    B::ForEach(queue_, n, body::FindRows{store_.table(), wanted.data(), row_of.Reserve(queue_, n)});
    const std::uint32_t count = Select(n, found.Reserve(queue_, n), body::RowIsThere{row_of.data()});
    const std::size_t floats = std::size_t{count} * rows.floats;
    B::ForEachTile(queue_, count, options_.dim,
                   body::CopyRecords{rows, row_of.data(), found.data(), records.Reserve(queue_, floats)});

    RowRecords out{std::vector<Key>(count), std::vector<float>(floats)};
    std::vector<std::uint32_t> places(count);
    B::CopyOut(queue_, places.data(), found.data(), count);
    B::CopyOut(queue_, out.records.data(), records.data(), floats);
    std::ranges::transform(places, out.keys.begin(), [&](std::uint32_t place) { return keys[place]; });
    return out;
  }

 private:
  // Rows of gradients, and which of them is a bag's: null, the bag itself.
  struct Gradients {
    const float* rows;
    const std::uint32_t* places;  // [bags]
  };

  void UpdateBy(const Gradients& gradients, const StepScalars& scalars) {
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

  // Of `batch`, what is this rank's.
  void Keep(const BatchView& batch) {
    prepared_ = {};
    prepared_.batch = batch;
    prepared_.bags = batch.bags();
    prepared_.most = static_cast<std::uint32_t>(batch.keys.size());
    if (ranks_ == 1) {
      prepared_.keys = batch.keys.data();
      prepared_.weights = batch.weights.empty() ? nullptr : batch.weights.data();
      prepared_.offsets = batch.offsets.data();
      prepared_.size = prepared_.most;
    } else {
      KeepMine(batch);
    }
    prepared_.rows = rows_.Reserve(queue_, prepared_.most);
  }

  // Waits for the selection of this rank's keys, which lookups that insert none can do without.
  void LearnSize() {
    if (prepared_.size_on_device == nullptr) return;
    prepared_.size = B::Get(queue_, std::exchange(prepared_.size_on_device, nullptr));
  }

  static Queue& QueueOf(Stream& stream) { return static_cast<typename B::Stream&>(stream).queue(); }

  body::FindRows FindRows() { return {store_.table(), prepared_.keys, prepared_.rows}; }

  // Finds the keys' rows, and lists those without.
  void Search() {
    LearnSize();
    std::uint32_t* const absent = absent_.Reserve(queue_, prepared_.size);
    prepared_.absent =
        B::ForEachNumbered(queue_, prepared_.size, body::FindRowsAndAbsent{FindRows(), absent});
    prepared_.searched = true;
  }

  Result<NewRows> PrepareInsert() {
    LearnSize();
    // Where most keys were new the last time, to search for them first is mostly in vain.
    if (mostly_new_ && prepared_.size > 0 && store_.HasRoomFor(prepared_.size)) {
      store_.ReserveAdd(queue_, prepared_.size);
      prepared_.absent = prepared_.size;
      return NewRows{prepared_.size, false};
    }
    Search();
    if (prepared_.absent == 0) return NewRows{0, true};
    store_.ReserveAdd(queue_, prepared_.absent);
    if (store_.HasRoomFor(prepared_.absent)) return NewRows{prepared_.absent, prepared_.absent == 1};
    // Counting repeated keys once may well show that there is room; if not, grow by what is really new.
    const std::uint64_t exact = ExactNewRows();
    if (store_.rows() + exact > kMaxRowsPerShard) {
      return ResourceExhausted("this rank holds " + std::to_string(store_.rows()) + " of at most " +
                               std::to_string(kMaxRowsPerShard) + " rows, and the batch brings it " +
                               std::to_string(exact) + " new keys");
    }
    // Past max_rows no room is made: the ranks, who add their rows up, will refuse the batch.
    if (store_.rows() + exact <= store_.max_rows()) store_.MakeRoomFor(queue_, exact);
    return NewRows{exact, true};
  }

  void KeepMine(const BatchView& batch) {
    const body::IsMine is_mine{buckets_.data(), rank_};
    Key* mine = keys_.Reserve(queue_, prepared_.most);
    std::uint32_t* offsets = offsets_.Reserve(queue_, prepared_.bags + std::size_t{1});
    B::SelectKeys(queue_, batch.keys.data(), prepared_.most, mine, kept_.data(), is_mine);
    B::ForEach(queue_, prepared_.bags,
               body::CountMine{is_mine, batch.keys.data(), batch.offsets.data(), offsets});
    B::ExclusiveScan(queue_, offsets, prepared_.bags, offsets);
    prepared_.size_on_device = kept_.data();
    prepared_.keys = mine;
    prepared_.offsets = offsets;
    if (!batch.weights.empty()) KeepMyWeights(batch, is_mine);
  }

  void KeepMyWeights(const BatchView& batch, const body::IsMine& is_mine) {
    std::uint32_t* places = items_.Reserve(queue_, prepared_.most);
    float* weights = weights_.Reserve(queue_, prepared_.most);
    B::SelectIndices(queue_, prepared_.most, places, selected_.data(),
                     body::KeyIsMine{is_mine, batch.keys.data()});
    B::ForEachUpTo(queue_, prepared_.most, selected_.data(),
                   body::CopyWeights{batch.weights.data(), places, weights});
    prepared_.weights = weights;
  }

  bool Divides() const {
    return options_.combiner == Combiner::kMean || options_.combiner == Combiner::kSqrtn;
  }
  body::BagDivisor DivisorOf(const std::uint32_t* offsets, const float* weights) const {
    return {offsets, weights, options_.combiner == Combiner::kSqrtn};
  }

  // use(their pointer, as what they are).
  template <class Use>
  static void WithElements(ConstNumbers numbers, Use use) {
    switch (numbers.type) {
      case DataType::kFloat32:
        return use(static_cast<const float*>(numbers.data));
      case DataType::kFloat16:
        return use(static_cast<const body::Float16*>(numbers.data));
      case DataType::kBFloat16:
        return use(static_cast<const body::BFloat16*>(numbers.data));
    }
  }

  void PoolTo(Numbers out, const std::uint32_t* places) {
    WithElements(out, [&]<class T>(const T*) {
      B::ForEachRun(queue_, prepared_.bags, options_.dim,
                    body::PoolBags<T>{store_.values(), prepared_.rows, prepared_.offsets, prepared_.weights,
                                      places, static_cast<T*>(out.data)});
    });
  }

  // How many of [0, n) `keep` accepts; they are written to `out`.
  template <class Keep>
  std::uint32_t Select(std::uint32_t n, std::uint32_t* out, Keep keep) {
    B::SelectIndices(queue_, n, out, selected_.data(), keep);
    return B::Get(queue_, selected_.data());
  }

  // The prepared keys as segments of equal rows: see body/update.h. Sorted along: every occurrence's place in the batch,
  // or its bag's, of `bag_places` if there are any.
  body::Segments SortByRow(const std::uint32_t* bag_places, bool places) {
    const std::uint32_t n = prepared_.size;
    auto* rows = reinterpret_cast<std::uint32_t*>(prepared_.rows);
    PairBuffers pairs{{rows, sorted_rows_.Reserve(queue_, n)},
                      {items_.Reserve(queue_, n), sorted_items_.Reserve(queue_, n)}};
    std::uint32_t* bag_of = places ? bag_of_.Reserve(queue_, n) : pairs.values[0];
    B::ForEach(queue_, prepared_.bags,
               body::ExpandBags{prepared_.offsets, places ? nullptr : bag_places, bag_of});
    if (places) B::ForEach(queue_, n, body::CountUp{pairs.values[0]});
    B::SortPairs(queue_, pairs, n, static_cast<std::uint32_t>(std::bit_width(store_.rows_used())));
    body::Segments segments{pairs.keys[pairs.current], pairs.values[pairs.current],
                            segment_begin_.Reserve(queue_, n), 0, n};
    segments.segments = Select(n, segment_begin_.data(), body::BeginsSegment{segments.rows});
    return segments;
  }

  template <class Optimizer>
  void UpdateWith(const Gradients& gradients, Optimizer optimizer) {
    if (prepared_.size == 0) return;
    const body::OptimizerRule<Optimizer> rule{optimizer, options_.optimizer.weight_decay};
    if (!Divides() && prepared_.weights == nullptr) {
      const body::Segments segments = SortByRow(gradients.places, false);
      return UpdateFrom(segments, body::BagGradients{gradients.rows, segments.items, options_.dim}, rule);
    }
    const body::Segments segments = SortByRow(nullptr, true);
    UpdateFrom(segments,
               body::ScaledGradients{gradients.rows, segments.items, bag_of_.data(), prepared_.weights,
                                     Divides() ? WriteDivisors() : nullptr, gradients.places, options_.dim},
               rule);
  }

  // The divisors of everybody's bags.
  const float* WriteDivisors() {
    const BatchView& batch = prepared_.batch;
    const float* weights = batch.weights.empty() ? nullptr : batch.weights.data();
    float* divisors = divisors_.Reserve(queue_, prepared_.bags);
    B::ForEach(queue_, prepared_.bags,
               body::WriteDivisors{DivisorOf(batch.offsets.data(), weights), divisors});
    return divisors;
  }

  // Long segments are summed first: that takes memory, and no row may have moved if it cannot be had.
  template <class Optimizer, class Source>
  void UpdateFrom(const body::Segments& segments, Source source, const body::OptimizerRule<Optimizer>& rule) {
    std::uint32_t* long_segments = long_segments_.Reserve(queue_, segments.segments);
    const std::uint32_t longs = Select(segments.segments, long_segments, body::IsLong{segments});
    body::BlockSums sums{nullptr, options_.dim};
    if (longs > 0) sums = SumLongSegments(segments, source, longs);

    B::ForEachRun(queue_, segments.segments, options_.dim,
                  body::ApplyOptimizerToShort<Optimizer, Source>{segments, source, store_.values(), rule});
    B::ForEachTile(
        queue_, longs, options_.dim,
        body::ApplyOptimizerToLong<Optimizer>{segments, long_segments, sums, store_.values(), rule});
  }

  // Level by level, until every long segment is one item.
  template <class Source>
  body::BlockSums SumLongSegments(const body::Segments& segments, Source source, std::uint32_t longs) {
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
      B::ExclusiveScan(queue_, block_count, longs, block_offset);
      blocks = B::Get(queue_, block_offset + longs);
      float* out = sums_[level % 2].Reserve(queue_, std::size_t{blocks} * options_.dim);
      const body::Level items{first, length};
      if (level == 0) {
        B::ForEachTile(queue_, blocks, options_.dim,
                       body::SumBlocks<Source>{items, source, block_offset, longs, options_.dim, out});
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
  RowStore<B> store_;
  Prepared<B> prepared_;
  bool mostly_new_ = true;  // of the last batch that was inserted

  Scratch<std::uint32_t> selected_;  // one: how many the last selection kept
  Scratch<std::uint32_t> kept_;      // one: how many of the prepared batch's keys are this rank's

  // Of PlanTraffic: where bags lie on their ways, and how many go which way.
  // What comes back is added beside the next batch's work, which therefore has other places.
  Scratch<std::uint32_t> sent_places_, received_places_[kBatchesInFlight], traffic_counts_;
  unsigned plans_ = 0;
  typename B::HostCopy traffic_on_host_;
  body::BagCopies copies_{};
  BagTraffic traffic_;

  // Scratch of Prepare: this rank's keys, their bags' offsets, their weights, their rows, which of them have none.
  Scratch<Key> keys_;
  Scratch<std::uint32_t> offsets_;
  Scratch<float> weights_;
  Scratch<RowIndex> rows_;
  Scratch<std::uint32_t> absent_;
  // Scratch of Update: sorted occurrences, segments, and the levels of long ones' sums.
  Scratch<std::uint32_t> sorted_rows_, items_, sorted_items_, bag_of_, segment_begin_, long_segments_;
  Scratch<float> divisors_;
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
