#include "tests/support/apart_device.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tests/support/apart_memory.h"

namespace slotwise::test {
namespace {

class Late;

// A piece of work of a stream.
struct Work {
  std::function<void()> run;
  std::function<bool()> ready = {};        // empty: it does not wait for another device
  std::shared_ptr<Late> before = nullptr;  // it comes after the first `count` pieces of this stream's
  std::size_t count = 0;
};

// What was asked of a stream and is not done yet.
class Late {
 public:
  void Add(Work work) { asked_.push_back(std::move(work)); }
  void Forget() {
    done_ += asked_.size();
    asked_.clear();
  }
  std::size_t asked() const { return done_ + asked_.size(); }
  std::size_t done() const { return done_; }
  bool IsDone() const { return asked_.empty(); }

  // Does the first `count` pieces that were ever asked of it, and what they come after, as far as they are
  // not done and do not wait for another device. True if they are done.
  bool Do(std::size_t count) {
    while (done_ < count) {
      if (asked_.front().before && !asked_.front().before->Do(asked_.front().count)) return false;
      if (!MayBegin()) return false;
      DoNext();
    }
    return true;
  }

  // Does one piece, if it may begin.
  bool DoOne() {
    if (asked_.empty() || !MayBegin()) return false;
    DoNext();
    return true;
  }

 private:
  bool MayBegin() const {
    const Work& next = asked_.front();
    if (next.before && next.before->done() < next.count) return false;
    return !next.ready || next.ready();
  }
  void DoNext() {
    const Work work = std::move(asked_.front());
    asked_.pop_front();
    ++done_;
    if (work.run) work.run();
  }

  std::deque<Work> asked_;
  std::size_t done_ = 0;
};

// The memory and the streams of a device, and when these do their work.
class Lates {
 public:
  explicit Lates(LateSchedule* schedule) : schedule_(schedule) {}

  ApartMemory& memory() { return memory_; }

  std::shared_ptr<Late> Make() { return streams_.emplace_back(std::make_shared<Late>()); }

  void Ask(Late& late, Work work) {
    if (left_) return;
    late.Add(std::move(work));
    Call();
  }

  // Any call of the device: time in which it may do something.
  void Call() {
    if (schedule_ == nullptr || left_) return;
    for (std::size_t steps = schedule_->Steps(); steps > 0; --steps) {
      streams_[schedule_->Choose(streams_.size())]->DoOne();
    }
  }
  bool MakeProgress() {
    const std::size_t first = schedule_ == nullptr ? 0 : schedule_->Choose(streams_.size());
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      if (streams_[(first + i) % streams_.size()]->DoOne()) return true;
    }
    return false;
  }

  // Waits until all is done that was asked of `late` until now.
  void Wait(Late& late) {
    if (schedule_ != nullptr) schedule_->BeforeWait();
    if (!Drain(late)) throw std::runtime_error("the device waits for another one that is gone");
  }
  void WaitForAll() {
    if (schedule_ != nullptr) schedule_->BeforeWait();
    if (!DrainAll()) throw std::runtime_error("the device waits for another one that is gone");
  }

  // The same for those who cannot throw. False if it can never be done; then everything is forgotten.
  bool Drain(Late& late) noexcept {
    const std::size_t count = late.asked();
    if (left_ || late.Do(count)) return !left_;
    if (schedule_ != nullptr && schedule_->AwaitOthers([&] { return late.Do(count); })) return true;
    left_ = true;
    for (const auto& stream : streams_) stream->Forget();
    return false;
  }
  bool DrainAll() noexcept {
    return std::ranges::all_of(streams_, [this](const auto& stream) { return Drain(*stream); });
  }

 private:
  ApartMemory memory_;
  LateSchedule* const schedule_;
  std::vector<std::shared_ptr<Late>> streams_;
  bool left_ = false;  // by the other devices, for ever
};

class ApartStream final : public Stream {
 public:
  explicit ApartStream(std::shared_ptr<Lates> lates) : lates_(std::move(lates)), late_(lates_->Make()) {}
  ~ApartStream() override { Drain(); }

  void Ask(Work work) { lates_->Ask(*late_, std::move(work)); }
  void Drain() noexcept { lates_->Drain(*late_); }
  Lates& lates() { return *lates_; }
  void OrderAfter(Stream& other) override {
    const auto& before = static_cast<ApartStream&>(other).late_;
    if (before == late_) return;
    Ask({.run = {}, .before = before, .count = before->asked()});
  }
  void Copy(void* to, const void* from, std::size_t bytes) override {
    lates_->memory().CheckRange(to, bytes);
    lates_->memory().CheckRange(from, bytes);
    Ask({.run = [to, from, bytes] {
      if (bytes > 0) std::memmove(to, from, bytes);
    }});
  }
  void AddToEach(std::uint32_t* to, const std::uint32_t* from, std::size_t count,
                 std::uint32_t add) override {
    lates_->memory().CheckRange(to, count * sizeof(*to));
    lates_->memory().CheckRange(from, count * sizeof(*from));
    Ask({.run = [=] { std::transform(from, from + count, to, [add](std::uint32_t x) { return x + add; }); }});
  }
  void Wait() override { lates_->Wait(*late_); }
  bool IsDone() override {
    lates_->Call();
    return late_->IsDone();
  }
  void Convert(ConstNumbers from, std::size_t size, Numbers to) override {
    Ask({.run = [=] {
      if (to.type == DataType::kFloat32) {
        Widen(static_cast<const std::byte*>(from.data), from.type, {static_cast<float*>(to.data), size});
      } else {
        Narrow({static_cast<const float*>(from.data), size}, to.type, static_cast<std::byte*>(to.data));
      }
    }});
  }
  void SumOverRanks(const RankBlocks& blocks, float* sum) override {
    Ask({.run = [blocks, sum] { SumOverRanksOnHost(blocks, sum); }});
  }
  void* NativeHandle() const override { return nullptr; }

 private:
  std::shared_ptr<Lates> lates_;
  std::shared_ptr<Late> late_;
};

class ApartPlan final : public AllToAllPlan {
 public:
  ApartPlan(Stream& cpu_work, std::unique_ptr<AllToAllPlan> cpu)
      : cpu_work_(cpu_work), cpu_(std::move(cpu)) {}

  AllToAllPlan& cpu() const { return *cpu_; }
  const BagTraffic& Traffic() override { return cpu_->Traffic(); }
  void AddReceived(Stream& stream, ConstNumbers received, float* sums) const override {
    static_cast<ApartStream&>(stream).Ask(
        {.run = [this, received, sums] { cpu_->AddReceived(cpu_work_, received, sums); }});
  }

 private:
  Stream& cpu_work_;
  std::unique_ptr<AllToAllPlan> cpu_;
};

AllToAllPlan& CpuPlanOf(AllToAllPlan& plan) { return static_cast<ApartPlan&>(plan).cpu(); }

// The batch of the CPU's shard is known when the work is done that prepares the batch.
class ApartShard final : public Shard, public ShardBatch, public ShardSnapshot {
 public:
  ~ApartShard() override { work_.Drain(); }

  // A row has so many floats, with its state.
  ApartShard(ApartStream& work, Stream& cpu_work, std::unique_ptr<Shard> shard, std::size_t floats)
      : work_(work), cpu_work_(cpu_work), shard_(std::move(shard)), floats_(floats) {}

  // Only the number of new keys is waited for, and what is to be erased.
  void BeginPrepare(const BatchView& batch, PrepareFor purpose, const Admitting& admitting) override {
    finds_ = purpose == PrepareFor::kFind || purpose == PrepareFor::kFindOrInitial;
    Later([=, this] { shard_->BeginPrepare(batch, purpose, admitting); });
  }
  Result<PreparedRows> FinishPrepare() override {
    if (!finds_) {
      const Result<PreparedRows> rows = Told().FinishPrepare();
      if (!rows.ok()) return rows;
      batch_ = rows->batch;
      adds_ = rows->new_rows.count > 0;
      return PreparedRows{this, rows->new_rows};
    }
    Later([this] {
      const Result<PreparedRows> rows = shard_->FinishPrepare();
      if (!rows.ok()) throw std::bad_alloc();
      batch_ = rows->batch;
    });
    return PreparedRows{this, {}};
  }
  std::uint64_t ExactNewRows() override { return NowOfBatch().ExactNewRows(); }
  CandidateKeys Candidates() override { return NowOfBatch().Candidates(); }
  Shard& Wrapped() override { return shard_->Wrapped(); }
  void Protect() override {
    Later([this] { batch_->Protect(); });
  }
  void BeginInsert(std::uint64_t score) override {
    Later([=, this] { batch_->BeginInsert(score); });
  }
  void FinishInsert() override {
    if (adds_) return ToldOfBatch().FinishInsert();
    Later([this] { batch_->FinishInsert(); });
  }
  std::vector<Key> InsertedKeys() override { return NowOfBatch().InsertedKeys(); }
  void Pool(Numbers partial, const BagRange& bags) override {
    Later([=, this] { batch_->Pool(partial, bags); });
  }
  void DivideBags(Stream& stream, std::span<const std::uint32_t> offsets, const float* weights,
                  float* values) override {
    static_cast<ApartStream&>(stream).Ask(
        {.run = [=, this] { shard_->DivideBags(cpu_work_, offsets, weights, values); }});
  }
  // At once, so that code that fills a plan still in use sees it overwritten as early as a GPU might.
  void PlanAllToAll(std::span<const std::size_t> bags_of, AllToAllPlan& plan) override {
    NowOfBatch().PlanAllToAll(bags_of, CpuPlanOf(plan));
  }
  void PoolToSend(AllToAllPlan& plan, Numbers partial) override {
    Later([=, this, &plan] { batch_->PoolToSend(CpuPlanOf(plan), partial); });
  }
  void GradientsToSend(AllToAllPlan& plan, const float* gradients, float* sent) override {
    Later([=, this, &plan] { batch_->GradientsToSend(CpuPlanOf(plan), gradients, sent); });
  }
  std::uint64_t CopyBeforeWrite() override { return NowOfBatch().CopyBeforeWrite(); }
  void GroupRows() override {
    Later([this] { batch_->GroupRows(); });
  }
  void PlanSums() override { ToldOfBatch().PlanSums(); }
  void Update(const float* gradients, AllToAllPlan* plan, const StepScalars& scalars) override {
    AllToAllPlan* const cpu_plan = plan == nullptr ? nullptr : &CpuPlanOf(*plan);
    Later([=, this] { batch_->Update(gradients, cpu_plan, scalars); });
  }
  void Touch(std::uint64_t step) override { NowOfBatch().Touch(step); }
  void RaiseCounters(const CounterRaises& raises) override { NowOfBatch().RaiseCounters(raises); }
  void Assign(const float* values, std::uint32_t columns) override {
    Later([=, this] { batch_->Assign(values, columns); });
  }
  std::uint64_t Erase(std::vector<Key>* removed) override { return NowOfBatch().Erase(removed); }
  void CountPlaces(const EvictionOrder& order, const PlacePrefix& prefix,
                   std::span<std::uint64_t> counts) override {
    Now().CountPlaces(order, prefix, counts);
  }
  std::vector<Key> EndProtection(const EvictionOrder& order,
                                 const std::optional<EvictionPlace>& last) override {
    return Now().EndProtection(order, last);
  }
  Result<PreparedRows> ListUpTo(const EvictionOrder& order, const EvictionPlace& last, EvictedSums& sums,
                                EvictedAges* ages) override {
    const Result<PreparedRows> rows = Now().ListUpTo(order, last, sums, ages);
    if (!rows.ok()) return rows;
    batch_ = rows->batch;
    return PreparedRows{this, rows->new_rows};
  }
  Status ReserveBehind(std::uint64_t evicted, std::uint64_t more) override {
    return Now().ReserveBehind(evicted, more);
  }
  RowAges CountAges(const EvictionOrder& order) override { return Now().CountAges(order); }
  DigestSums Digest() override { return Now().Digest(); }
  // A shard knows its rows without asking the device. What was begun late here has to be done first.
  ShardUsage Usage() const override { return Told().Usage(); }
  // Of the batches whose work is done.
  const ProbeLengths& SampledProbes() override { return shard_->SampledProbes(); }
  std::vector<Key> Keys() override { return Now().Keys(); }
  RowRecords Read(std::span<const Key> keys) override { return Now().Read(keys); }
  Status TrackChanges(std::uint64_t max_erased) override { return Now().TrackChanges(max_erased); }
  Result<BegunSnapshot> BeginSnapshot(const SnapshotOptions& options) override {
    Result<BegunSnapshot> begun = Now().BeginSnapshot(options);
    if (!begun.ok()) return begun;
    snapshot_ = begun->snapshot;
    return BegunSnapshot{this, std::move(begun->info)};
  }
  // Rows are fetched late, by `stream`; collected in the order of the work; and brought by `stream`.
  void Read(Stream& stream, std::span<const RowIndex> rows, float* host_records) override {
    auto& way = static_cast<ApartStream&>(stream);
    struct Staged {
      std::vector<RowIndex> rows;
      std::vector<float> records;
    };
    const auto staged = std::make_shared<Staged>();
    way.OrderAfter(work_);
    way.Ask({.run = [=] { staged->rows.assign(rows.begin(), rows.end()); }});
    work_.OrderAfter(way);
    Later([=, this] {
      staged->records.resize(rows.size() * floats_);
      snapshot_->Read(cpu_work_, staged->rows, staged->records.data());
    });
    way.OrderAfter(work_);
    way.Ask({.run = [=] { std::ranges::copy(staged->records, host_records); }});
  }
  std::uint64_t Room() override {
    Now();
    return snapshot_->Room();
  }
  void End(bool kept) override {
    Now();
    snapshot_->End(kept);
  }
  void EndAlter(bool kept, std::uint64_t score) override {
    if (kept) floats_ = next_floats_;
    Later([=, this] { shard_->EndAlter(kept, score); });
  }
  Status Reserve(std::uint64_t rows) override { return Now().Reserve(rows); }

 protected:
  Status LoadRecords(std::span<const Key> keys, const float* host_records) override {
    return Now().Load(keys, host_records);
  }
  void FreeMemoryOfBatches() override { Now().FreeScratch(); }
  Status PrepareAlter(const TableOptions& options, std::uint64_t max_rows) override {
    next_floats_ = RecordFloats(options);
    return Now().BeginAlter(options, max_rows);
  }

 private:
  void Later(std::function<void()> work) { work_.Ask({.run = std::move(work)}); }
  Shard& Now() {
    work_.Wait();
    return *shard_;
  }
  ShardBatch& NowOfBatch() {
    work_.Wait();
    return *batch_;
  }
  // The host waits for the answers that it asked for, and does not if it has waited since.
  Shard& Told() const {
    if (!work_.IsDone()) work_.Wait();
    return *shard_;
  }
  ShardBatch& ToldOfBatch() {
    Told();
    return *batch_;
  }

  ApartStream& work_;
  Stream& cpu_work_;
  std::unique_ptr<Shard> shard_;
  std::size_t floats_;
  std::size_t next_floats_ = 0;        // of an alteration that was begun
  bool finds_ = false;                 // of the batch that was begun: keys without a row stay so
  bool adds_ = false;                  // of the batch that was prepared: there may be new keys
  ShardBatch* batch_ = nullptr;        // the CPU shard's
  ShardSnapshot* snapshot_ = nullptr;  // the CPU shard's
};

// Host memory knows its own size, so that all of it can be overwritten when it is given back.
constexpr std::size_t kSizeBytes = 64;

void* AllocateWithSize(std::size_t bytes) {
  const std::size_t all = (kSizeBytes + bytes + kSizeBytes - 1) / kSizeBytes * kSizeBytes;
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(kSizeBytes, all));
  if (memory == nullptr) throw std::bad_alloc();
  std::memset(memory, ApartMemory::kNeverWritten, all);
  std::memcpy(memory, &all, sizeof(all));
  return memory + kSizeBytes;
}

void OverwriteAndFree(void* memory) noexcept {
  if (memory == nullptr) return;
  std::byte* const whole = static_cast<std::byte*>(memory) - kSizeBytes;
  std::size_t all = 0;
  std::memcpy(&all, whole, sizeof(all));
  std::memset(memory, ApartMemory::kGivenBack, all - kSizeBytes);
  std::free(whole);
}

class ApartDevice final : public Device {
 public:
  ApartDevice(int ordinal, LateSchedule* schedule, std::unique_ptr<LateSchedule> own_schedule)
      : ordinal_(ordinal),
        own_schedule_(std::move(own_schedule)),
        lates_(std::make_shared<Lates>(schedule)) {}
  ~ApartDevice() override { lates_->DrainAll(); }

  std::string Name() const override { return "apart"; }
  Result<std::unique_ptr<Shard>> MakeShard(const TableOptions& options, const ShardPlace& place) override {
    auto shard = cpu_->MakeShard(options, place);
    if (!shard.ok()) return shard;
    const std::size_t floats = RecordFloats(options);
    return std::unique_ptr<Shard>(
        std::make_unique<ApartShard>(work_, cpu_->WorkStream(), std::move(*shard), floats));
  }
  std::unique_ptr<AllToAllPlan> MakeAllToAllPlan() override {
    return std::make_unique<ApartPlan>(cpu_->WorkStream(), cpu_->MakeAllToAllPlan());
  }
  void* Allocate(std::size_t bytes) override { return lates_->memory().Allocate(bytes); }
  void Free(void* memory) noexcept override {
    lates_->DrainAll();
    lates_->memory().Free(memory);
  }
  HostMemory AllocateHost(std::size_t bytes) override {
    return {AllocateWithSize(bytes),
            {[](void* memory, int /*ordinal*/) noexcept { OverwriteAndFree(memory); }, ordinal_}};
  }
  std::unique_ptr<IngestCopy> MakeIngestCopy() override { return cpu_->MakeIngestCopy(); }
  std::unique_ptr<DeviceSharedBuffer> MakeSharedBuffer(std::size_t bytes) override {
    return cpu_->MakeSharedBuffer(bytes);
  }
  std::string Uuid() const override { return cpu_->Uuid(); }
  bool SharesHostMemory() const override { return false; }
  std::uint64_t MemoryBytes() const override { return HostMemoryBytesInAll(); }
  std::uint64_t FreeMemoryBytes() const override { return cpu_->FreeMemoryBytes(); }
  Stream& WorkStream() override { return work_; }
  std::unique_ptr<Stream> MakeStream() override { return std::make_unique<ApartStream>(lates_); }
  void Wait() override { lates_->WaitForAll(); }
  void UseOnThisThread() override {}
  int Ordinal() const override { return ordinal_; }

  Lates& lates() { return *lates_; }

 private:
  const int ordinal_;
  const std::unique_ptr<LateSchedule> own_schedule_;
  std::unique_ptr<Device> cpu_ = MakeCpuDevice(1);
  std::shared_ptr<Lates> lates_;
  ApartStream work_{lates_};
};

// Nothing of it waits for another device.
class SeededSchedule final : public LateSchedule {
 public:
  explicit SeededSchedule(std::uint64_t seed) : random_(seed), kind_(static_cast<Kind>(random_() % 4)) {}

  std::size_t Steps() override {
    switch (kind_) {
      case Kind::kLatest:
        return 0;
      case Kind::kEarliest:
        return kMany;
      case Kind::kSometimes:
        return random_() % 8 == 0 ? random_() % kMany : 0;
      case Kind::kOften:
        break;
    }
    return random_() % 4;
  }
  std::size_t Choose(std::size_t streams) override { return random_() % streams; }
  bool AwaitOthers(const std::function<bool()>& /*ready*/) noexcept override { return false; }

 private:
  enum class Kind : std::uint8_t { kLatest, kEarliest, kSometimes, kOften };
  static constexpr std::size_t kMany = 64;

  std::mt19937_64 random_;
  const Kind kind_;
};

}  // namespace

std::unique_ptr<Device> MakeApartDevice(int ordinal) {
  return std::make_unique<ApartDevice>(ordinal, nullptr, nullptr);
}

std::unique_ptr<Device> MakeApartDevice(LateSchedule& schedule, int ordinal) {
  return std::make_unique<ApartDevice>(ordinal, &schedule, nullptr);
}

std::unique_ptr<Device> MakeSeededApartDevice(std::uint64_t seed, int ordinal) {
  auto schedule = std::make_unique<SeededSchedule>(seed);
  LateSchedule* const drawn = schedule.get();
  return std::make_unique<ApartDevice>(ordinal, drawn, std::move(schedule));
}

void AddWork(Stream& stream, std::function<bool()> ready, std::function<void()> work) {
  static_cast<ApartStream&>(stream).Ask({.run = std::move(work), .ready = std::move(ready)});
}

bool MakeProgress(Device& device) { return static_cast<ApartDevice&>(device).lates().MakeProgress(); }

}  // namespace slotwise::test
