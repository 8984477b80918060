// A round of several tables waits for its device and for other ranks as often as a round of one table, and
// takes as many arrays of host memory. Its small arrays go to the device together.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "server/engine/clock.h"
#include "server/engine/evicted_log.h"
#include "server/engine/operations/definition.h"
#include "server/engine/operations/lookup.h"
#include "server/engine/operations/push.h"
#include "server/engine/operations/round_context.h"
#include "server/engine/staged_upload.h"
#include "tests/engine/running_engine.h"
#include "tests/support/apart_device.h"
#include "tests/support/test_secret.h"

namespace slotwise::test {
namespace {

// The device's work is done as late as may be, so that each use of it has to wait, and is counted.
class CountWaits final : public LateSchedule {
 public:
  std::size_t waits = 0;

  std::size_t Steps() override { return 0; }
  std::size_t Choose(std::size_t streams) override { return streams - 1; }
  void BeforeWait() override { ++waits; }
  bool AwaitOthers(const std::function<bool()>& /*ready*/) noexcept override { return false; }
};

class CountAgreements final : public Collective {
 public:
  std::size_t agreements = 0;

  Rank rank() const override { return solo_->rank(); }
  int size() const override { return solo_->size(); }
  int local_rank() const override { return solo_->local_rank(); }
  int local_size() const override { return solo_->local_size(); }
  void AllGather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    ++agreements;
    solo_->AllGather(mine, all);
  }
  void AllReduceSum(std::span<std::uint64_t> values) override {
    ++agreements;
    solo_->AllReduceSum(values);
  }
  void Wake(std::uint64_t wait) override { solo_->Wake(wait); }
  bool PollWake(std::uint64_t wait) override { return solo_->PollWake(wait); }

 private:
  const std::unique_ptr<Collective> solo_ = MakeSoloCollective();
};

class CountHostArrays final : public Device {
 public:
  explicit CountHostArrays(Device& device) : device_(device) {}
  std::size_t arrays = 0;

  std::string Name() const override { return device_.Name(); }
  Result<std::unique_ptr<Shard>> MakeShard(const TableOptions& options, const ShardPlace& place) override {
    return device_.MakeShard(options, place);
  }
  void* Allocate(std::size_t bytes) override { return device_.Allocate(bytes); }
  void Free(void* memory) noexcept override { device_.Free(memory); }
  HostMemory AllocateHost(std::size_t bytes) override {
    ++arrays;
    return device_.AllocateHost(bytes);
  }
  std::unique_ptr<IngestCopy> MakeIngestCopy() override { return device_.MakeIngestCopy(); }
  std::unique_ptr<DeviceSharedBuffer> MakeSharedBuffer(std::size_t bytes) override {
    return device_.MakeSharedBuffer(bytes);
  }
  std::string Uuid() const override { return device_.Uuid(); }
  bool SharesHostMemory() const override { return device_.SharesHostMemory(); }
  std::uint64_t MemoryBytes() const override { return device_.MemoryBytes(); }
  std::uint64_t FreeMemoryBytes() const override { return device_.FreeMemoryBytes(); }
  Stream& WorkStream() override { return device_.WorkStream(); }
  std::unique_ptr<Stream> MakeStream() override { return device_.MakeStream(); }
  std::unique_ptr<AllToAllPlan> MakeAllToAllPlan() override { return device_.MakeAllToAllPlan(); }
  void Wait() override { device_.Wait(); }
  void UseOnThisThread() override { device_.UseOnThisThread(); }
  int Ordinal() const override { return device_.Ordinal(); }

 private:
  Device& device_;
};

struct Counts {
  std::size_t waits;
  std::size_t agreements;
  std::size_t host_arrays;
  friend bool operator==(const Counts&, const Counts&) = default;
};
std::ostream& operator<<(std::ostream& out, const Counts& counts) {
  return out << counts.waits << " waits, " << counts.agreements << " agreements, " << counts.host_arrays
             << " arrays of host memory";
}

constexpr std::size_t kSamples = 8;
constexpr std::uint32_t kDim = 3;  // no multiple of what arrays are aligned to

// Tables, and the operations of the only rank on them.
class SeveralTables {
 public:
  explicit SeveralTables(std::uint32_t count) {
    for (std::uint32_t t = 0; t < count; ++t) {
      Table table;
      table.info.id = tables_.NewId();
      table.info.options.name = TableName("table" + std::to_string(t));
      table.info.options.dim = kDim;
      table.info.options.initializer = {1, 1, 0};
      table.info.options.optimizer.learning_rate = 1;
      table.learning_rate = 1;
      table.shard = std::move(
          *device_.MakeShard(table.info.options, {.secret = kTestSecret, .max_rows = kMaxRowsPerShard}));
      ids_.push_back(table.info.id);
      tables_.Add(std::move(table));
    }
  }

  // What a round of lookups of keys [first, first + kSamples) of every table takes until it is answered.
  Counts Lookup(std::uint64_t first, LookupMode mode, DataType type = DataType::kFloat32) {
    return CountsOf(RoundOf(
        [&](std::size_t t) {
          LookupRequest request{ids_[t], mode, PartOf(Keys(first)),
                                [this, t](Result<PooledValues> pooled) { pooled_[t] = std::move(pooled); }};
          request.type = type;
          return Request(std::move(request));
        },
        mode));
  }
  Counts Push(std::uint64_t first) {
    const std::vector<float> gradients(kSamples * kDim, 1);
    ++step_;
    return CountsOf(RoundOf(
        [&](std::size_t t) {
          PushRequest request{
              ids_[t],
              {1, step_, 0, 1},
              PartOf(Keys(first), gradients),
              [this](const Result<AppliedStep>& applied) { applied_ += applied.ok() ? 1 : 0; }};
          return Request(std::move(request));
        },
        LookupMode::kTrain));
  }

  // The answers of the last lookups, and how many tables pushes were applied to.
  const std::vector<Result<PooledValues>>& pooled() const { return pooled_; }
  std::size_t applied() const { return applied_; }
  Table& table(std::size_t t) { return *tables_.Get(ids_[t]); }

 private:
  static Bags Keys(std::uint64_t first) {
    std::vector<std::uint64_t> keys(kSamples);
    std::iota(keys.begin(), keys.end(), first);
    return UnitBags(keys);
  }

  template <class RequestOf>
  Round RoundOf(const RequestOf& request_of, LookupMode mode) {
    Round round;
    pooled_.assign(ids_.size(), Status(StatusCode::kInternal, "no answer"));
    for (std::size_t t = 0; t < ids_.size(); ++t) {
      Round share;
      Request request = request_of(t);
      const Proposal proposal = request.proposal();
      const Ticket ticket{Rank{0}, tickets_.Add(std::move(request))};
      share.operation = proposal.operation;
      share.operation_class = proposal.operation_class;
      share.of_table = true;
      share.table = ids_[t];
      share.mode = mode;
      share.step = {1, step_, 0, 1};
      share.step.tables = static_cast<std::uint32_t>(ids_.size());
      share.bodies = {0};
      share.parts = {{.ticket = ticket, .samples = kSamples, .keys = kSamples}};
      share.waiters = {ticket};
      t == 0 ? round = share : round.others.emplace_back(share);
    }
    return round;
  }

  Counts CountsOf(const Round& round) {
    const Counts before{schedule_.waits, collective_.agreements, device_.arrays};
    const OperationTraits& operation = operations_.Of(round.operation);
    context_.Begin(operation, round);
    operation.run(context_, round);
    context_.End(round);
    context_.stages.FinishAll();
    return {schedule_.waits - before.waits, collective_.agreements - before.agreements,
            device_.arrays - before.host_arrays};
  }

  CountWaits schedule_;
  const std::unique_ptr<Device> apart_ = MakeApartDevice(schedule_);
  CountHostArrays device_{*apart_};
  CountAgreements collective_;
  const Exchanges exchanges_ = Exchanges::MakeSolo(*apart_);
  ArrayPool arrays_{device_, 0};  // keeps nothing, so that every array is made, and counted
  Tables tables_{100};
  PendingRequests tickets_;
  RoundLog log_;
  const TableMaker maker_{device_, collective_, kTestSecret, {}};
  Checkpointing checkpointing_{device_, collective_, tables_, {}, {}};
  static constexpr std::uint64_t kManyBytes = 1 << 30;  // of new rows
  const OperationTable operations_;
  EvictedLog evicted_{0};
  RoundContext context_{device_,      collective_, exchanges_, maker_, kManyBytes, DistributionOptions{},
                        arrays_,      tables_,     tickets_,   log_,   evicted_,   checkpointing_,
                        SystemClock()};
  std::vector<TableId> ids_;
  std::vector<Result<PooledValues>> pooled_;
  std::size_t applied_ = 0;
  std::uint64_t step_ = 0;
};

TEST(ARoundOfSeveralTables, WaitsAsOftenAsARoundOfOneTable) {
  SeveralTables one(1);
  SeveralTables many(26);
  for (SeveralTables* const tables : {&one, &many}) {  // arrays grow, for which all wait
    for (int turn = 0; turn < 3; ++turn) {
      tables->Lookup(0, LookupMode::kTrain);
      tables->Push(0);
    }
  }
  EXPECT_EQ(many.Lookup(0, LookupMode::kEval), one.Lookup(0, LookupMode::kEval));
  EXPECT_EQ(many.Lookup(0, LookupMode::kEval, DataType::kFloat16),
            one.Lookup(0, LookupMode::kEval, DataType::kFloat16));
  EXPECT_EQ(many.Lookup(0, LookupMode::kTrain), one.Lookup(0, LookupMode::kTrain));
  EXPECT_EQ(many.Lookup(100, LookupMode::kTrain), one.Lookup(100, LookupMode::kTrain)) << "with new keys";
  EXPECT_EQ(many.Push(0), one.Push(0));
  EXPECT_EQ(many.Push(200), one.Push(200)) << "with new keys";
  EXPECT_EQ(many.applied(), 5U * 26);
}

TEST(ARoundOfSeveralTables, AnswersEachLookupWithItsOwnRows) {
  SeveralTables tables(5);
  tables.Push(0);  // new rows are 1, gradients 1, the learning rate 1
  tables.Lookup(kSamples / 2, LookupMode::kTrain);
  for (const Result<PooledValues>& pooled : tables.pooled()) {
    ASSERT_TRUE(pooled.ok()) << pooled.status().message();
    std::vector<float> expected(kSamples / 2 * kDim, 0);
    expected.resize(kSamples * kDim, 1);
    EXPECT_TRUE(std::ranges::equal(pooled->floats(), expected));
  }
}

// Lookups that only share a round do not share its failure.
TEST(ARoundOfSeveralTables, RefusesTheLookupsOfAFullTableAlone) {
  SeveralTables tables(3);
  tables.Lookup(0, LookupMode::kTrain);
  tables.table(1).info.options.max_rows = kSamples;
  tables.Lookup(1, LookupMode::kTrain);  // one key is new
  for (const std::size_t t : {0, 1, 2}) {
    EXPECT_EQ(tables.pooled()[t].ok(), t != 1) << t;
    EXPECT_EQ(tables.table(t).shard->Usage().rows, t == 1 ? kSamples : kSamples + 1) << t;
  }
  EXPECT_EQ(tables.pooled()[1].status().code(), StatusCode::kResourceExhausted);
}

// A stream that counts copies, of a device whose memory is not the host's.
class CountCopies final : public Stream {
 public:
  struct Copied {
    const void* to;
    std::size_t bytes;
    friend bool operator==(const Copied&, const Copied&) = default;
  };
  std::vector<Copied> copies;

  void OrderAfter(Stream& /*other*/) override {}
  void Copy(void* to, const void* from, std::size_t bytes) override {
    copies.push_back({to, bytes});
    std::copy_n(static_cast<const std::byte*>(from), bytes, static_cast<std::byte*>(to));
  }
  void Convert(ConstNumbers /*from*/, std::size_t /*size*/, Numbers /*to*/) override {}
  void SumOverRanks(const RankBlocks& /*blocks*/, float* /*sum*/) override {}
  void AddToEach(std::uint32_t*, const std::uint32_t*, std::size_t, std::uint32_t) override {}
  void Wait() override {}
  bool IsDone() override { return true; }
  void* NativeHandle() const override { return nullptr; }
};

class AStagedUpload : public testing::Test {
 protected:
  void SetUp() override { std::iota(from_.begin(), from_.end(), 0U); }

  const std::unique_ptr<Device> device_ = MakeApartDevice();
  CountCopies stream_;
  StagedUpload upload_{*device_, stream_};
  std::vector<std::uint32_t> from_ = std::vector<std::uint32_t>(50'000);
  std::vector<std::uint32_t> to_ = std::vector<std::uint32_t>(50'000);
};

TEST_F(AStagedUpload, BringsSmallArraysThatLieBehindEachOtherInOneCopy) {
  upload_.Begin(1000 * sizeof(std::uint32_t));
  for (std::size_t i = 0; i < 900; i += 100) upload_.Copy(&to_[i], &from_[i], 400);
  auto* const written = static_cast<std::uint32_t*>(upload_.WriteTo(&to_[900], 400));
  std::copy_n(&from_[900], 100, written);
  EXPECT_TRUE(stream_.copies.empty());
  upload_.Flush();
  EXPECT_EQ(stream_.copies, (std::vector<CountCopies::Copied>{{to_.data(), 4000}}));
  EXPECT_TRUE(std::equal(from_.begin(), from_.begin() + 1000, to_.begin()));
  upload_.Flush();
  EXPECT_EQ(stream_.copies.size(), 1U) << "once";
}

TEST_F(AStagedUpload, BringsLargeArraysFromWhereTheyAre) {
  EXPECT_EQ(upload_.StagedBytes(ArrayPool::kLeastBytes, MemoryKind::kHost), 0U);
  EXPECT_EQ(upload_.StagedBytes(400, MemoryKind::kDevice), 0U);
  upload_.Begin(800);
  upload_.Copy(to_.data(), from_.data(), 400);
  upload_.Copy(&to_[100], &from_[100], ArrayPool::kLeastBytes);
  upload_.Copy(&to_[40'000], &from_[40'000], 400);
  upload_.Flush();
  EXPECT_EQ(stream_.copies.size(), 3U) << "small ones lie apart";
  EXPECT_TRUE(std::equal(from_.begin(), from_.begin() + 100 + ArrayPool::kLeastBytes / 4, to_.begin()));
  EXPECT_TRUE(std::equal(from_.begin() + 40'000, from_.begin() + 40'100, to_.begin() + 40'000));
}

TEST_F(AStagedUpload, WritesAtOnceToMemoryThatIsTheHostsOwn) {
  const auto cpu = MakeCpuDevice(1);
  StagedUpload upload(*cpu, stream_);
  upload.Begin(0);
  EXPECT_EQ(upload.WriteTo(&to_[7], 4), &to_[7]);
  upload.Copy(to_.data(), from_.data(), 400);
  EXPECT_EQ(stream_.copies.size(), 1U);
}

}  // namespace
}  // namespace slotwise::test
