// ShardOn implements the shard and its batch on every backend: it passes each call of shard.h and
// shard_batch.h to a class of kernels/, and has the memory that these classes share.
//
// Included by shard_cpu.cc, shard_cuda.cu and a test alone.
#ifndef SLOTWISE_KERNELS_SHARD_INL_
#define SLOTWISE_KERNELS_SHARD_INL_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/admission.inl"
#include "kernels/all_to_all_plan.inl"
#include "kernels/backend/concept.h"
#include "kernels/body/pool.h"
#include "kernels/bulk_load.inl"
#include "kernels/eviction.inl"
#include "kernels/export.inl"
#include "kernels/prepared_batch.inl"
#include "kernels/probe_sample.inl"
#include "kernels/row_store.inl"
#include "kernels/row_updates.inl"
#include "kernels/shard.h"
#include "kernels/snapshot.inl"
#include "kernels/zero_divisor_bags.inl"

namespace slotwise {

template <Backend B>
class ShardOn final : public Shard, private ShardBatch {
 public:
  using Queue = typename B::Queue;

  // Throws std::bad_alloc.
  ShardOn(Queue& queue, const TableOptions& options, const ShardPlace& place)
      : queue_(queue),
        combiner_(options.combiner),
        dim_(options.dim),
        initializer_(options.initializer),
        store_(queue, options, place.secret, options.initial_rows / static_cast<std::uint64_t>(place.ranks),
               place.max_rows),
        snapshot_(queue, store_),
        sharder_(queue, place),
        probes_(queue),
        admission_(options.admission),
        batch_(queue, store_),
        updates_(options) {}

  void BeginPrepare(const BatchView& batch, PrepareFor purpose, const Admitting& admitting) override {
    purpose_ = purpose;
    keys_of_batch_ = batch.keys.size();
    has_memory_ = true;
    try {
      const bool push = purpose == PrepareFor::kPush;
      const bool admits = push && admission_.on();
      if (admits) admission_.BeginPush(admitting.step, StoreOf(admitting.candidates));
      batch_.Begin(sharder_.SelectLocal(queue_, push ? WithoutZeroDivisorBags(batch) : batch, spare_),
                   admits ? &admission_ : nullptr);
      probes_.OnBatch(queue_, store_.hash_table(), store_.rehashes(), batch_.kept());
      inserts() ? batch_.AskForNew() : batch_.FindRows();
    } catch (const std::bad_alloc&) {
      has_memory_ = false;
    }
  }
  Result<PreparedRows> FinishPrepare() override {
    try {
      if (!has_memory_) throw std::bad_alloc();
      const Result<NewRows> rows = inserts() ? batch_.MakeRoom() : NewRows{};
      if (!rows.ok()) return rows.status();
      if (purpose_ == PrepareFor::kErase) {
        if (Status room = MakeRoomToErase(); !room.ok()) return room;
      }
      return PreparedRows{this, *rows};
    } catch (const std::bad_alloc&) {
      return ResourceExhausted(WhyNoMemory());
    }
  }

  Result<PreparedRows> ListUpTo(const EvictionOrder& order, const EvictionPlace& last, EvictedSums& sums,
                                EvictedAges* ages) override {
    purpose_ = PrepareFor::kErase;
    try {
      const KeptKeys listed = eviction_.List(queue_, store_, order, last, sums, ages);
      keys_of_batch_ = listed.size;
      batch_.Begin(listed);
      batch_.FindRows();
      batch_.SearchForNextKeys();
      if (Status room = MakeRoomToErase(); !room.ok()) return room;
      return PreparedRows{this, {}};
    } catch (const std::bad_alloc&) {
      return ResourceExhausted(WhyNoMemory());
    }
  }

  void DivideBags(Stream& stream, std::span<const std::uint32_t> offsets, const float* weights,
                  float* values) override {
    if (!Divides(combiner_)) return;
    const body::BagDivisor divisor = body::DivisorOf(combiner_, offsets.data(), weights);
    B::ForEachTile(QueueOf(stream), static_cast<std::uint32_t>(offsets.size() - 1), dim_,
                   body::DivideBags{divisor, dim_, values});
  }

  void CountPlaces(const EvictionOrder& order, const PlacePrefix& prefix,
                   std::span<std::uint64_t> counts) override {
    eviction_.Count(queue_, store_, order, prefix, counts);
  }
  Status ReserveBehind(std::uint64_t evicted, std::uint64_t more) override {
    try {
      store_.ReserveBehind(queue_, evicted, more);
      return {};
    } catch (const std::bad_alloc&) {
      return ResourceExhausted("no memory for " + std::to_string(more) + " new rows in the place of " +
                               std::to_string(evicted) + " evicted ones");
    }
  }
  std::vector<Key> EndProtection(const EvictionOrder& order,
                                 const std::optional<EvictionPlace>& last) override {
    return eviction_.EndProtection(queue_, store_, order, last);
  }

  RowAges CountAges(const EvictionOrder& order) override {
    return EvictionOn<B>::CountAges(queue_, store_, order);
  }
  DigestSums Digest() override { return DigestOf<B>(queue_, store_); }
  ShardUsage Usage() const override {
    ShardUsage usage = store_.Usage();
    usage.step_keys = updates_.step_keys();
    usage.step_rows = updates_.step_rows();
    usage.refused_keys = updates_.refused_keys();
    return usage;
  }
  const ProbeLengths& SampledProbes() override { return probes_.Read(); }
  std::vector<Key> Keys() override { return ExportKeys<B>(queue_, store_); }
  RowRecords Read(std::span<const Key> keys) override { return ExportRows<B>(queue_, store_, keys); }

  Status TrackChanges(std::uint64_t max_erased) override {
    if (snapshot_.is_open()) throw std::logic_error("changes are to count anew while a snapshot is open");
    try {
      store_.TrackChanges(queue_, max_erased);
      return {};
    } catch (const std::bad_alloc&) {
      return ResourceExhausted("no memory to mark which of " + std::to_string(store_.rows()) +
                               " rows change");
    }
  }

  Result<BegunSnapshot> BeginSnapshot(const SnapshotOptions& options) override {
    return snapshot_.Begin(options);
  }

  void EndAlter(bool kept, std::uint64_t score) override {
    store_.EndAlter(queue_, kept, altered_.options, altered_.max_rows, score);
    if (!kept) return;
    admission_.Alter(altered_.options.admission);
    updates_.Alter(altered_.options);
  }

  Status Reserve(std::uint64_t rows) override {
    if (rows > store_.max_rows()) {
      return ResourceExhausted("this rank holds at most " + std::to_string(store_.max_rows()) +
                               " rows, and is to make room for " + std::to_string(rows));
    }
    try {
      if (rows > store_.rows()) store_.MakeRoomFor(queue_, rows - store_.rows());
      return {};
    } catch (const std::bad_alloc&) {
      return ResourceExhausted("no memory for " + std::to_string(rows) + " rows");
    }
  }

 private:
  // These calls are about the prepared batch.
  std::uint64_t ExactNewRows() override { return batch_.ExactNewRows(); }
  CandidateKeys Candidates() override { return admission_.Candidates(); }
  void Protect() override { eviction_.Protect(queue_, store_, batch_.kept()); }
  void BeginInsert(std::uint64_t score) override {
    score_ = score;
    batch_.BeginInsert();
  }
  void FinishInsert() override { batch_.FinishInsert(score_); }
  std::vector<Key> InsertedKeys() override { return batch_.InsertedKeys(); }

  void Pool(Numbers partial, const BagRange& bags) override { PoolTo(partial, bags, nullptr); }

  static_assert(AllToAllPlan::kMostRanks == body::kMostRanks);
  void PlanAllToAll(std::span<const std::size_t> bags_of, AllToAllPlan& plan) override {
    auto& mine = static_cast<AllToAllPlanOn<B>&>(plan);
    const std::uint64_t number = batch_.number();
    if (!mine.IsOf(number)) mine.Plan(queue_, number, batch_.kept(), sharder_, bags_of, dim_);
  }
  void PoolToSend(AllToAllPlan& plan, Numbers partial) override {
    PoolTo(partial, {}, PlanOfThisBatch(plan).sent_places());
  }
  void GradientsToSend(AllToAllPlan& plan, const float* gradients, float* sent) override {
    PlanOfThisBatch(plan).CopyGradients(queue_, gradients, sent);
  }

  std::uint64_t CopyBeforeWrite() override { return snapshot_.Save(batch_); }
  void GroupRows() override { Group(nullptr); }
  void PlanSums() override { updates_.Plan(queue_, batch_); }
  void Update(const float* gradients, AllToAllPlan* plan, const StepScalars& scalars) override {
    const std::uint32_t* const places = plan == nullptr ? nullptr : PlanOfThisBatch(*plan).sent_places();
    if (!updates_.IsGrouped(batch_)) Group(places);
    updates_.Plan(queue_, batch_);
    updates_.Apply(queue_, batch_, store_, {gradients, places}, scalars);
  }
  void Touch(std::uint64_t step) override {
    SaveBeforeChange();
    updates_.Touch(queue_, batch_, store_, step, spare_);
  }
  void RaiseCounters(const CounterRaises& raises) override {
    SaveBeforeChange();
    updates_.RaiseCounters(queue_, batch_, store_, raises, spare_);
  }
  void Assign(const float* values, std::uint32_t columns) override {
    SaveBeforeChange();
    updates_.Assign(queue_, batch_, store_, values, columns, score_, spare_);
  }
  std::uint64_t Erase(std::vector<Key>* removed) override {
    if (removed != nullptr) removed->reserve(removed->size() + batch_.kept().size);
    SaveBeforeChange();
    const std::uint64_t erased = store_.Erase(queue_, batch_.kept().keys, batch_.kept().size, removed);
    eviction_.FreeLongLists();
    return erased;
  }

  Status LoadRecords(std::span<const Key> keys, const float* host_records) override {
    if (snapshot_.is_open()) throw std::logic_error("rows are to be loaded while a snapshot is open");
    try {
      return LoadRows<B>(queue_, store_, keys, host_records, spare_);
    } catch (const std::bad_alloc&) {
      return ResourceExhausted("no memory to load " + std::to_string(keys.size()) + " rows beside the " +
                               std::to_string(store_.rows()) + " rows of this rank");
    }
  }
  Status PrepareAlter(const TableOptions& options, std::uint64_t max_rows) override {
    if (snapshot_.is_open() && !KeepsRows(store_.options(), options))
      throw std::logic_error("rows are to change with their table's options while a snapshot is open");
    altered_ = {options, max_rows};
    try {
      store_.PrepareAlter(queue_, options, max_rows);
      return {};
    } catch (const std::bad_alloc&) {
      store_.EndAlter(queue_, false, options, max_rows, 0);
      return ResourceExhausted("no memory to alter table " + options.name.str() +
                               ": it takes address space for max_rows " + std::to_string(options.max_rows) +
                               ", and scores, if they are new, 16 bytes a row, of " +
                               std::to_string(store_.rows()) + " rows of this rank");
    }
  }
  void FreeMemoryOfBatches() override {
    eviction_.FreeScratch();
    admission_.FreeScratch();
    batch_.FreeScratch();
    store_.FreeScratch();
    sharder_.FreeScratch();
    updates_.FreeScratch();
    zero_divisor_bags_ = {};
    spare_ = {};
  }

  void PoolTo(Numbers partial, const BagRange& bags, const std::uint32_t* places) {
    if (purpose_ != PrepareFor::kFindOrInitial) return batch_.Pool(partial, bags, places);
    batch_.PoolOrInitial(partial, bags, places, initializer_);
  }

  // Says what the shard is altered to, between BeginAlter and EndAlter.
  struct Altered {
    TableOptions options;
    std::uint64_t max_rows = 0;
  };

  static RowStore<B>* StoreOf(Shard* candidates) {
    return candidates == nullptr ? nullptr : &static_cast<ShardOn&>(candidates->Wrapped()).store_;
  }

  bool inserts() const { return purpose_ == PrepareFor::kInsert || purpose_ == PrepareFor::kPush; }

  Status MakeRoomToErase() {
    batch_.LearnSize();
    const std::uint32_t keys = batch_.kept().size;
    try {
      store_.ReserveErase(queue_, keys);
      return {};
    } catch (const std::bad_alloc&) {
      return ResourceExhausted("no memory to remember the rows of " + std::to_string(keys) + " erased keys");
    }
  }

  std::string WhyNoMemory() {
    const auto mib = [](std::uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; };
    std::string why = "no memory for a batch of " + std::to_string(keys_of_batch_) + " keys beside the " +
                      std::to_string(store_.rows()) +
                      " rows of this rank: " + mib(B::MemoryForTables(queue_)) + " are left for tables";
    if (const std::uint64_t next = store_.BytesOfNextTable(keys_of_batch_); next > 0)
      why += ", and the next hash table takes " + mib(next) + " beside the one that is there";
    return why;
  }

  void Group(const std::uint32_t* places) {
    SaveBeforeChange();
    updates_.Group(queue_, batch_, store_, places, spare_);
  }

  // Throws, with nothing changed, if there is no room: callers call CopyBeforeWrite before.
  void SaveBeforeChange() {
    if (const std::uint64_t missing = CopyBeforeWrite(); missing > 0) {
      throw std::logic_error("a batch changes " + std::to_string(missing) +
                             " rows more than the open snapshot has room to save");
    }
  }

  // Only weights can make the divisor of a bag with keys 0, so other batches cost nothing here.
  BatchView WithoutZeroDivisorBags(const BatchView& batch) {
    if (!Divides(combiner_) || batch.weights.empty()) return batch;
    return zero_divisor_bags_.LeaveOut(
        queue_, batch, body::DivisorOf(combiner_, batch.offsets.data(), batch.weights.data()));
  }

  AllToAllPlanOn<B>& PlanOfThisBatch(AllToAllPlan& plan) {
    auto& mine = static_cast<AllToAllPlanOn<B>&>(plan);
    if (!mine.IsOf(batch_.number()))
      throw std::logic_error("the all-to-all plan is not the prepared batch's");
    return mine;
  }

  static Queue& QueueOf(Stream& stream) { return static_cast<typename B::Stream&>(stream).queue(); }

  Queue& queue_;
  const Combiner combiner_;
  const std::uint32_t dim_;
  const InitializerOptions initializer_;
  RowStore<B> store_;
  ShardSnapshotOn<B> snapshot_;
  ZeroDivisorBags<B> zero_divisor_bags_;
  Sharder<B> sharder_;
  ProbeSample<B> probes_;
  EvictionOn<B> eviction_;
  AdmissionOn<B> admission_;
  PreparedBatch<B> batch_;
  PrepareFor purpose_ = PrepareFor::kFind;  // of the batch, as are the next three
  std::size_t keys_of_batch_ = 0;           // of all ranks
  std::uint64_t score_ = 0;                 // of the rows that it inserts
  bool has_memory_ = true;                  // whether BeginPrepare got its memory
  RowUpdates<B> updates_;
  Altered altered_;
  // Two calls of a batch use this scratch one after the other, so that a large batch takes it once: first the
  // sharder selects weights in it; from an update on it holds the sorted occurrences.
  typename B::template Scratch<std::uint32_t> spare_;
};

// Implements Device::MakeShard for every backend.
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
