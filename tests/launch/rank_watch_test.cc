// An mpirun that does not end after its ranks is woken, and later killed. One that starts no ranks is killed,
// too.
#include "server/launch/rank_watch.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/durability/folder_lock.h"
#include "server/launch/leftovers.h"
#include "server/launch/process.h"
#include "tests/support/temporary_folder.h"

namespace slotwise::launch {
namespace {

using std::chrono::seconds;
using Help = RankWatch::Help;

const std::string& Id() {
  static const std::string id = "rank watch test " + std::to_string(getpid());
  return id;
}

// Starts a program that carries what a rank does, or what mpirun does, and waits until that can be seen.
Process Start(bool is_rank) {
  const std::size_t before = FindLeftovers(Id()).size();
  std::vector<std::string> variables{std::string(kIdVariable) + "=" + Id()};
  if (is_rank) variables.emplace_back(kRankVariable);
  auto process = Process::Start({"sleep", "600"}, variables);
  EXPECT_TRUE(process.ok());
  const auto deadline = std::chrono::steady_clock::now() + seconds(20);
  while (FindLeftovers(Id()).size() <= before && std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  return std::move(*process);
}

void End(Process& process) {
  process.Kill();
  const auto deadline = std::chrono::steady_clock::now() + seconds(20);
  while (!process.ExitCode() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_TRUE(process.ExitCode());
}

constexpr RankWatch::Run kStarts{};
constexpr RankWatch::Run kServes{.serves = true};
constexpr RankWatch::Run kStopped{.mpirun_is_stopped = true, .serves = true};
constexpr RankWatch::Run kTold{.serves = true, .is_told_to_end = true};
constexpr RankWatch::Run kToldAsItStarts{.is_told_to_end = true};

class RankWatchTest : public ::testing::Test {
 protected:
  Help Look(const RankWatch::Run& run, int second) {
    return watch_.Look(run, RankWatch::Clock::time_point{} + seconds(second));
  }
  // What rank 0 does, on whichever host.
  FolderLock HoldFolder() const {
    auto lock = FolderLock::Take(folder_.path(), "server.lock", "a server");
    EXPECT_TRUE(lock.ok());
    return std::move(*lock);
  }

  const test::TemporaryFolder folder_;
  RankWatch watch_{Id(), folder_.path(), {.patience = seconds(10), .to_first_rank = seconds(120)}};
};

TEST_F(RankWatchTest, LeavesAnMpirunAloneWhileARankRuns) {
  Process rank = Start(true);
  watch_.Learn();
  EXPECT_EQ(Look(kServes, 0), Help::kNone);
  EXPECT_EQ(Look(kStopped, 1000), Help::kNone) << "somebody wants to look at it";
  EXPECT_EQ(Look(kTold, 2000), Help::kNone) << "it finishes what runs";
  End(rank);
}

TEST_F(RankWatchTest, GivesAnMpirunTimeToEndAfterItsRanks) {
  Process rank = Start(true);
  watch_.Learn();
  End(rank);
  EXPECT_EQ(Look(kServes, 0), Help::kNone);
  EXPECT_EQ(Look(kStopped, 1), Help::kContinue);
  EXPECT_EQ(Look(kServes, 9), Help::kNone);
  EXPECT_EQ(Look(kStopped, 10), Help::kKill);
}

TEST_F(RankWatchTest, GivesTimeFromWhenTheLastRankHasEnded) {
  Process one = Start(true);
  Process other = Start(true);
  watch_.Learn();
  End(one);
  EXPECT_EQ(Look(kServes, 0), Help::kNone);
  EXPECT_EQ(Look(kServes, 1000), Help::kNone) << "the other one runs";
  End(other);
  EXPECT_EQ(Look(kServes, 1001), Help::kNone);
  EXPECT_EQ(Look(kTold, 1010), Help::kNone);
  EXPECT_EQ(Look(kTold, 1011), Help::kKill) << "a stop meanwhile gives no more time";
}

TEST_F(RankWatchTest, WakesAnMpirunThatWasStoppedBeforeAnyRankWasThere) {
  Process no_rank = Start(false);
  EXPECT_EQ(Look(kServes, 0), Help::kNone);
  EXPECT_EQ(Look(kServes, 1000), Help::kNone) << "its ranks may all be on other hosts";
  EXPECT_EQ(Look(kStopped, 2000), Help::kContinue);
  End(no_rank);
}

TEST_F(RankWatchTest, LearnsOfRanksWhereverAnMpirunIsStopped) {
  Process rank = Start(true);
  EXPECT_EQ(Look(kStopped, 0), Help::kNone);
  End(rank);
  EXPECT_EQ(Look(kStopped, 1), Help::kContinue);
  EXPECT_EQ(Look(kStopped, 11), Help::kKill);
}

TEST_F(RankWatchTest, LearnsOfRanksThatDieAsTheyStart) {
  Process rank = Start(true);
  EXPECT_EQ(Look(kStarts, 0), Help::kNone);
  EXPECT_EQ(Look(kStarts, 1000), Help::kNone) << "a recovery may take long";
  End(rank);
  EXPECT_EQ(Look(kStarts, 1001), Help::kNone);
  EXPECT_EQ(Look(kStarts, 1010), Help::kNone);
  EXPECT_EQ(Look(kStarts, 1011), Help::kKill);
  EXPECT_TRUE(watch_.has_seen_rank());
}

TEST_F(RankWatchTest, LearnsOfARankThatComesAfterOthersHaveEnded) {
  Process one = Start(true);
  EXPECT_EQ(Look(kStarts, 0), Help::kNone);
  End(one);
  Process other = Start(true);
  EXPECT_EQ(Look(kStarts, 1), Help::kNone);
  EXPECT_EQ(Look(kStarts, 1000), Help::kNone);
  End(other);
}

TEST_F(RankWatchTest, GivesAnMpirunTimeToStartARank) {
  Process no_rank = Start(false);
  EXPECT_EQ(Look(kStarts, 0), Help::kNone);
  EXPECT_EQ(Look(kStarts, 119), Help::kNone);
  EXPECT_EQ(Look(kStarts, 120), Help::kKill);
  EXPECT_FALSE(watch_.has_seen_rank());
  End(no_rank);
}

TEST_F(RankWatchTest, KnowsThatRanksOnOtherHostsStart) {
  EXPECT_EQ(Look(kStarts, 0), Help::kNone);
  {
    const FolderLock held = HoldFolder();
    EXPECT_EQ(Look(kStarts, 119), Help::kNone);
    EXPECT_TRUE(watch_.has_seen_rank());
    EXPECT_EQ(Look(kStarts, 1000), Help::kNone) << "a recovery may take long";
  }
  EXPECT_EQ(Look(kStarts, 1001), Help::kNone);
  EXPECT_EQ(Look(kStarts, 1010), Help::kNone);
  EXPECT_EQ(Look(kStarts, 1011), Help::kKill);
}

TEST_F(RankWatchTest, LetsRanksOnOtherHostsFinish) {
  std::optional<FolderLock> held = HoldFolder();
  EXPECT_EQ(Look(kStarts, 0), Help::kNone);
  held.reset();
  EXPECT_EQ(Look(kServes, 1), Help::kNone);
  EXPECT_EQ(Look(kServes, 1000), Help::kNone) << "NFS has lost the lock";
  held.emplace(HoldFolder());
  EXPECT_EQ(Look(kTold, 1001), Help::kNone);
  EXPECT_EQ(Look(kTold, 2000), Help::kNone);
  held.reset();
  EXPECT_EQ(Look(kTold, 2001), Help::kNone);
  EXPECT_EQ(Look(kTold, 2010), Help::kNone);
  EXPECT_EQ(Look(kTold, 2011), Help::kKill);
}

TEST_F(RankWatchTest, LeavesRanksToFinishThatItCannotSee) {
  EXPECT_EQ(Look(kServes, 0), Help::kNone);
  EXPECT_EQ(Look(kTold, 1), Help::kNone);
  EXPECT_EQ(Look(kTold, 1000), Help::kNone) << "no file system carries the lock to here";
}

TEST_F(RankWatchTest, DoesNotWaitForAHostThatWasCutOffWithTheLock) {
  const FolderLock held = HoldFolder();
  Process rank = Start(true);
  EXPECT_EQ(Look(kStarts, 0), Help::kNone);
  End(rank);
  EXPECT_EQ(Look(kTold, 1), Help::kNone);
  EXPECT_EQ(Look(kTold, 11), Help::kKill);
}

TEST_F(RankWatchTest, LimitsAStopThatFindsNoRank) {
  EXPECT_EQ(Look(kStarts, 0), Help::kNone);
  EXPECT_EQ(Look(kStarts, 50), Help::kNone);
  EXPECT_EQ(Look(kToldAsItStarts, 51), Help::kNone) << "ranks may be about to come, and hear of it";
  EXPECT_EQ(Look(kToldAsItStarts, 60), Help::kNone);
  EXPECT_EQ(Look(kToldAsItStarts, 61), Help::kKill);
}

TEST_F(RankWatchTest, LetsARankFinishThatComesAfterAStop) {
  EXPECT_EQ(Look(kToldAsItStarts, 0), Help::kNone);
  Process rank = Start(true);
  EXPECT_EQ(Look(kToldAsItStarts, 9), Help::kNone);
  EXPECT_EQ(Look(kToldAsItStarts, 1000), Help::kNone);
  End(rank);
}

}  // namespace
}  // namespace slotwise::launch
