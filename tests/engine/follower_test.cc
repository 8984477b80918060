// A follower takes no part in a server's rounds and reads them only from the journal. It applies each round
// as a recovery does, and then has the server's tables.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "server/durability/journal_reader.h"
#include "server/engine/operations/replay.h"
#include "tests/durability/sim_files.h"
#include "tests/engine/running_engine.h"
#include "tests/support/test_secret.h"

namespace slotwise::test {
namespace {

class Follower {
 public:
  Follower(FileSystem& files, std::uint64_t generation) : files_(files), generation_(generation) {
    context_.round_outcome = &outcome_;
  }

  // Applies the rounds that the journal has and this follower has not. Returns how many they were.
  int Follow() {
    auto set = ReadJournals(files_, "data/journal", generation_, round_);
    EXPECT_TRUE(set.ok()) << set.status().message();
    JournalRounds rounds(files_, std::move(*set));
    int followed = 0;
    for (Result<bool> next = rounds.Next(); next.ok() && *next; next = rounds.Next()) {
      std::vector<std::vector<std::uint64_t>> memory(rounds.ranks());
      std::vector<RecordOfRank> records;
      for (std::size_t rank = 0; rank < rounds.ranks(); ++rank) {
        memory[rank].resize((rounds.body_bytes(rank) + 7) / 8);
        const auto body = std::as_writable_bytes(std::span(memory[rank])).first(rounds.body_bytes(rank));
        EXPECT_TRUE(rounds.ReadBody(rank, body).ok());
        records.push_back({RecordKind{rounds.kind(rank)}, body});
      }
      const Status applied = ReplayRound(operations_, context_, records);
      EXPECT_TRUE(applied.ok()) << rounds.PlaceOf(context_.reads_of) << ": " << applied.message();
      round_ = rounds.round();
      ++followed;
    }
    return followed;
  }

  const Tables& tables() const { return tables_; }
  // Returns the keys that rounds have removed since the last call.
  std::vector<Key> TakeRemoved() {
    std::vector<Key> keys;
    for (const RoundOutcome::Removed& of_table : std::exchange(outcome_, {}).removed)
      keys.insert(keys.end(), of_table.keys.begin(), of_table.keys.end());
    return keys;
  }

 private:
  FileSystem& files_;
  const std::uint64_t generation_;
  std::uint64_t round_ = 0;
  const OperationTable operations_;
  const std::unique_ptr<Device> device_ = MakeCpuDevice(1);
  const std::unique_ptr<Collective> collective_ = MakeSoloCollective();
  Tables tables_{16};
  const TableMaker maker_{*device_, *collective_, kTestSecret, RankLimit{}};
  CheckpointLoader loader_{
      Checkpoints(files_, "data/checkpoints"), SystemThreads(), *device_, *collective_, maker_, tables_};
  ReplayContext context_{*device_, tables_, maker_, loader_};
  RoundOutcome outcome_;
};

TEST(AFollower, ThatOnlyReadsRoundsHasTheTablesOfTheServer) {
  SimFiles files;
  DurabilityOptions durability;
  durability.mode = DurabilityMode::kSync;
  durability.folder = "data";
  durability.files = &files;
  durability.journal_reserve_bytes = 1 << 20;
  const EnginePlace place{MakeSoloCollective(), MakeCpuDevice(1)};
  EngineOptions options;
  options.instance = 1;
  RunningEngine server(place, MakeSoloCollective(), options, &durability);
  ASSERT_TRUE(server.recovered().ok()) << server.recovered().status().message();
  Follower follower(files, server.recovered()->base.lineage);

  TableOptions ads;
  ads.name = TableName("ads");
  ads.dim = 4;
  ads.optimizer.kind = OptimizerKind::kAdam;
  const TableId table = server.Create(ads);
  const auto step = [](std::uint64_t number) { return StepId{.session = 3, .number = number}; };
  const auto expect_the_same = [&] {
    const TableSummary theirs = server.Summarize(table);
    const Table* const mine = follower.tables().Get(table);
    ASSERT_NE(mine, nullptr);
    EXPECT_EQ(mine->shard->Digest(), theirs.digest);
    EXPECT_EQ(mine->steps, theirs.steps);
    EXPECT_EQ(mine->generation, theirs.generation);
  };
  ASSERT_TRUE(server.Push(table, step(1), UnitBags({1, 2, 3}), std::vector<float>(12, 0.5F)).ok());
  EXPECT_EQ(follower.Follow(), 2);
  expect_the_same();

  // It goes on while the server does.
  ASSERT_TRUE(server.Push(table, step(2), UnitBags({2, 3, 4}), std::vector<float>(12, -1.0F)).ok());
  server.SetLearningRate(table, 0.25F);
  ASSERT_TRUE(server.Push(table, step(3), UnitBags({4, 5}), std::vector<float>(8, 2.0F)).ok());
  ASSERT_TRUE(server.Import(table, {6, 7}, std::vector<float>(8, 7.0F)).ok());
  EXPECT_EQ(server.Erase(table, {1, 99}), 1U);
  EXPECT_EQ(follower.Follow(), 5);
  expect_the_same();
  EXPECT_EQ(follower.TakeRemoved(), std::vector{Key{1}});
  EXPECT_EQ(follower.Follow(), 0);

  ASSERT_TRUE(server.Drop(table).ok());
  EXPECT_EQ(follower.Follow(), 1);
  EXPECT_EQ(follower.tables().Get(table), nullptr);
}

}  // namespace
}  // namespace slotwise::test
