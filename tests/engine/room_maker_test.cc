// Between the ranks' agreement and the insertion, a round may make room in a full table. The round names the
// keys that it has removed, on the ranks that mpirun starts.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <future>
#include <memory>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "server/engine/key_batch.h"
#include "server/engine/round_outcome.h"
#include "server/engine/table_work.h"
#include "tests/engine/running_engine.h"

namespace slotwise::test {
namespace {

constexpr std::uint64_t kMaxRows = 8;

TableOptions Small(const char* name) {
  TableOptions options;
  options.name = TableName(name);
  options.dim = 4;
  options.optimizer.learning_rate = 1;
  options.initializer = {1, 1, 0};
  options.max_rows = kMaxRows;
  return options;
}

// Removes all rows but the batch's own.
class LeaveTheBatch final : public RoomMaker {
 public:
  explicit LeaveTheBatch(Device& device) : keys_(device) {}

  bool can = true;
  std::vector<std::array<std::uint64_t, 2>> made;  // rows and new ones of each call

  bool CanMakeRoom(const Table& /*table*/, std::uint64_t /*rows*/, std::uint64_t more) override {
    return can && more <= kMaxRows;
  }
  void MakeRoom(Table& table, const BatchView& batch, std::uint64_t rows, std::uint64_t more) override {
    made.push_back({rows, more});
    const std::set<Key> stay(batch.keys.begin(), batch.keys.end());
    std::vector<Key> go = table.shard->Keys();
    std::erase_if(go, [&](Key key) { return stay.contains(key); });
    ASSERT_TRUE(EraseKeys(*table.shard, keys_.Of(go)).ok());
  }

 private:
  KeyBatch keys_;
};

class NoteOutcomes final : public EngineObserver {
 public:
  std::vector<Key> removed;  // on this rank

  void OnTaken(const Request& /*request*/, TicketNumber /*ticket*/) override {}
  void OnDecision(const EngineState& /*state*/, const Decision& /*decision*/) override {}
  bool wants_outcomes() const override { return true; }
  void OnOutcome(std::uint64_t /*round*/, const RoundOutcome& outcome) override {
    for (const RoundOutcome::Removed& of_table : outcome.removed)
      removed.insert(removed.end(), of_table.keys.begin(), of_table.keys.end());
  }
};

class ARound : public testing::Test {
 protected:
  ARound() {
    EngineOptions options;
    options.room_maker = &maker_;
    ranks_ = std::make_unique<RunningEngine>(place_, Ranks(), options, nullptr, &outcomes_);
  }

  static std::unique_ptr<Collective> Ranks() {
    return LaunchedByMpi() ? MakeMpiCollective() : MakeSoloCollective();
  }
  // Every rank brings a part of these keys, each of whose rows gets a gradient of 1 from each.
  std::future<Result<std::uint64_t>> Start(TableId table, StepId step,
                                           const std::vector<std::uint64_t>& keys) {
    const Collective& ranks = ranks_->collective();
    step.parts = static_cast<std::uint32_t>(ranks.size());
    step.part = static_cast<std::uint32_t>(Value(ranks.rank()));
    return ranks_->StartPush(table, step, UnitBags(keys), std::vector<float>(keys.size() * 4, 1.0F));
  }
  Status Push(TableId table, std::uint64_t number, const std::vector<std::uint64_t>& keys) {
    return Start(table, {.session = 7, .number = number}, keys).get().status();
  }
  // Of all ranks, ascending.
  std::vector<std::uint64_t> KeysOf(TableId table) {
    std::vector<std::uint64_t> all;
    for (const Key key : ranks_->ListKeys(table)) all.push_back(Value(key));
    return Ascending(std::move(all));
  }
  std::vector<std::uint64_t> Ascending(std::vector<std::uint64_t> mine) {
    std::array<std::uint64_t, kMost> all{};
    for (const std::uint64_t key : mine) ++all.at(key);
    tests_->AllReduceSum(all);
    std::vector<std::uint64_t> keys;
    for (std::uint64_t key = 0; key < kMost; ++key) keys.insert(keys.end(), all[key], key);
    return keys;
  }
  std::uint64_t size() const { return static_cast<std::uint64_t>(ranks_->collective().size()); }

  static constexpr std::uint64_t kMost = 64;
  const std::unique_ptr<Collective> tests_ = Ranks();  // not the engine's
  const EnginePlace place_{Ranks(), MakeCpuDevice(1)};
  LeaveTheBatch maker_{*place_.device};
  NoteOutcomes outcomes_;
  std::unique_ptr<RunningEngine> ranks_;
};

TEST_F(ARound, GetsAFullTableRoomBehindTheAgreement) {
  const TableId table = ranks_->Create(Small("full"));
  ASSERT_TRUE(Push(table, 1, {0, 1, 2, 3, 4, 5, 6, 7}).ok());
  EXPECT_TRUE(maker_.made.empty());
  const Status pushed = Push(table, 2, {3, 20, 21});
  ASSERT_TRUE(pushed.ok()) << pushed.message();
  EXPECT_EQ(maker_.made, (std::vector<std::array<std::uint64_t, 2>>{{8, 2}}));
  EXPECT_EQ(KeysOf(table), (std::vector<std::uint64_t>{3, 20, 21}));
  const auto rows = ranks_->Lookup(table, UnitBags({3, 20, 0}), LookupMode::kEval);
  ASSERT_TRUE(rows.ok()) << rows.status().message();
  const auto steps = static_cast<float>(size());
  EXPECT_EQ((*rows)[4] - (*rows)[0], steps) << "row 3 has two steps and what it was, row 20 one";
  EXPECT_EQ((*rows)[8], 0.0F) << "key 0 has no row any more";
}

TEST_F(ARound, ThatIsRefusedRemovesNothing) {
  const TableId full = ranks_->Create(Small("full"));
  const TableId other = ranks_->Create(Small("other"));
  const std::vector<std::uint64_t> all{0, 1, 2, 3, 4, 5, 6, 7};
  ASSERT_TRUE(Push(full, 1, all).ok());
  const Status alone = Push(full, 2, {10, 11, 12, 13, 14, 15, 16, 17, 18});
  EXPECT_EQ(alone.reason(), Reason::kTableFull) << alone.message();

  // Of a step of two tables, one of which cannot have the keys, the other one loses nothing.
  StepId step{.session = 7, .number = 3, .tables = 2};
  auto first = Start(full, step, {10});
  step.place = 1;
  auto second = Start(other, step, {10, 11, 12, 13, 14, 15, 16, 17, 18});
  EXPECT_FALSE(first.get().ok());
  EXPECT_EQ(second.get().status().reason(), Reason::kTableFull);
  EXPECT_TRUE(maker_.made.empty());
  EXPECT_EQ(KeysOf(full), all);
}

TEST_F(ARound, SaysWhichKeysItHasRemoved) {
  const TableId table = ranks_->Create(Small("small"));
  ASSERT_TRUE(Push(table, 1, {1, 2, 3, 4, 5}).ok());
  std::array<std::uint64_t, 1> erased{ranks_->Erase(table, {2, 4, 4, 9})};
  tests_->AllReduceSum(erased);
  EXPECT_EQ(erased[0], 2U) << "every rank asks, and the first one's round finds the rows";
  ranks_.reset();  // its thread has ended
  const std::vector<std::uint64_t> removed = [&] {
    std::vector<std::uint64_t> mine;
    for (const Key key : outcomes_.removed) mine.push_back(Value(key));
    return mine;
  }();
  EXPECT_EQ(Ascending(removed), (std::vector<std::uint64_t>{2, 4}));
}

}  // namespace
}  // namespace slotwise::test
