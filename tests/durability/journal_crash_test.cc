// Runs of a server crash at each file operation in turn, and each continues from the files of the one before.
#include <algorithm>

#include "tests/durability/journal_rig.h"

namespace slotwise {
namespace {

// What must hold, over all runs.
struct Promises {
  std::uint64_t acknowledged = 0;  // on disk on all ranks
  std::uint64_t covered = 0;       // a checkpoint has them
};

// Recovers, starts, and goes on for some rounds, with marks, until the files die. Returns the first status
// that is not OK.
Status RunServer(SimFiles& files, std::uint32_t ranks, std::uint64_t instance, Promises& promises) {
  if (Status status = SyncJournals(files, kFolder); !status.ok()) return status;
  const Recovered recovered = Recover(files, promises.covered);
  if (!recovered.status.ok()) return recovered.status;
  const std::uint64_t last = recovered.set.LastCompleteRound();
  EXPECT_GE(last, promises.acknowledged);
  EXPECT_EQ(recovered.rounds, RoundsFromTo(promises.covered + 1, last));
  promises.acknowledged = last;  // it is synced, and lookups will show it

  std::vector<std::unique_ptr<RankOfTest>> journals;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    auto journal = StartRank(files, OptionsOf(rank, ranks, instance, recovered.set.Next()));
    if (!journal.ok()) return journal.status();
    journals.push_back(std::move(*journal));
  }
  for (std::uint64_t round = last + 1; round <= last + 12; ++round) {
    if (round % 5 == 0) {
      for (auto& rank : journals) rank->journal->BeginSegment(round);
    }
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      if (Status status = AppendRound(*journals[rank]->journal, rank, round); !status.ok()) return status;
    }
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      if ((round + rank) % 3 == 0) journals[rank]->journal->WriteQueued();
    }
    std::uint64_t complete = journals[0]->journal->durable();
    for (auto& rank : journals) {
      if (!rank->failures.empty()) return Unavailable(rank->failures.front());
      complete = std::min(complete, rank->journal->durable());
    }
    promises.acknowledged = std::max(promises.acknowledged, complete);
    for (auto& rank : journals) rank->journal->NoteComplete(complete);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      if ((round + 2 * rank) % 4 == 0) journals[rank]->journal->WriteMark();
    }
    if (round % 7 == 0) {
      promises.covered = std::max(promises.covered, complete);
      for (auto& rank : journals) {
        if (Status status = rank->journal->RemoveSegmentsBefore(promises.covered); !status.ok())
          return status;
      }
    }
  }
  return Status();
}

void End(SimFiles& files, bool power, std::uint64_t seed) {
  files.CrashAt(0);
  files.FailAt(0, SimFiles::Fault::kBroken);
  if (power) files.Crash(seed);
  if (!power) files.Kill();
}

// Runs servers, of several ranks, one after the other. The second has a fault at an operation, if it comes so
// far; two more die somewhere, and the last ones do not. Returns whether the second came so far.
bool CrashAt(std::uint64_t operation, std::uint64_t seed, bool power, bool dies) {
  SimFiles files;
  MakeDataFolder(files);
  Promises promises;
  std::uint64_t instance = 900 - seed;  // names of later runs may come before those of earlier ones
  EXPECT_TRUE(RunServer(files, 2, instance--, promises).ok());
  End(files, power, seed);

  const std::uint64_t at = files.operations() + operation;
  if (dies) files.CrashAt(at);
  if (!dies) files.FailAt(at, seed % 2 == 0 ? SimFiles::Fault::kNoSpace : SimFiles::Fault::kBroken);
  const Status faulty = RunServer(files, static_cast<std::uint32_t>(1 + seed % 3), instance--, promises);
  const bool reached = files.operations() >= at;
  EXPECT_TRUE(faulty.ok() || reached) << faulty.message();
  End(files, power, seed * 31);

  for (std::uint64_t run = 0; run < 4; ++run) {
    const auto ranks = static_cast<std::uint32_t>(1 + (seed + run) % 3);
    if (run < 2) files.CrashAt(files.operations() + 1 + (operation * 7 + seed * 13 + run * 29) % 80);
    const Status status = RunServer(files, ranks, instance--, promises);
    EXPECT_TRUE(status.ok() || files.dead()) << status.message();
    End(files, true, seed * 37 + run);  // what a process left in the system's memory may be lost later
  }
  return reached;
}

struct Ending {
  const char* name;
  bool power;  // it fails, or the process dies
  bool dies;   // at the operation, which else fails
  std::uint64_t seeds;
};

class JournalCrashTest : public ::testing::TestWithParam<Ending> {};

INSTANTIATE_TEST_SUITE_P(OfEachEnd, JournalCrashTest,
                         ::testing::Values(Ending{"WhereverThePowerFails", true, true, 12},
                                           Ending{"WhereverTheProcessDies", false, true, 6},
                                           Ending{"IfTheProcessDiesAfterAnOperationFailed", false, false, 6},
                                           Ending{"IfThePowerFailsAfterAnOperationFailed", true, false, 12}),
                         [](const auto& ending) { return std::string(ending.param.name); });

TEST_P(JournalCrashTest, NothingAcknowledgedIsLost) {
  for (std::uint64_t operation = 1, more = 1; more != 0; ++operation) {
    more = 0;
    for (std::uint64_t seed = 1; seed <= GetParam().seeds; ++seed) {
      more += CrashAt(operation, seed, GetParam().power, GetParam().dies) ? 1 : 0;
      ASSERT_FALSE(HasFailure()) << "operation " << operation << " seed " << seed;
    }
  }
}

}  // namespace
}  // namespace slotwise
