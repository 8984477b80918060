// An mpirun that does not end though its ranks have is woken, and later killed.
#include "server/launch/rank_watch.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/launch/leftovers.h"
#include "server/launch/process.h"

namespace slotwise::launch {
namespace {

using std::chrono::seconds;
using Help = RankWatch::Help;

const std::string& Id() {
  static const std::string id = "rank watch test " + std::to_string(getpid());
  return id;
}

// A program that carries what a rank does, or what mpirun does.
Process Start(bool is_rank) {
  std::vector<std::string> variables{std::string(kIdVariable) + "=" + Id()};
  if (is_rank) variables.emplace_back(kRankVariable);
  auto process = Process::Start({"sleep", "600"}, variables);
  EXPECT_TRUE(process.ok());
  const auto deadline = std::chrono::steady_clock::now() + seconds(20);
  while (FindLeftovers(Id()).empty() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  return std::move(*process);
}

void End(Process& process) {
  process.Kill();
  const auto deadline = std::chrono::steady_clock::now() + seconds(20);
  while (!process.ExitCode() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_TRUE(process.ExitCode());
}

TEST(RankWatch, LeavesAnMpirunAloneWhileARankRuns) {
  Process rank = Start(true);
  RankWatch watch(Id(), seconds(10));
  watch.Learn();
  const RankWatch::Clock::time_point now{};
  EXPECT_EQ(watch.Look(false, now), Help::kNone);
  EXPECT_EQ(watch.Look(true, now + seconds(1000)), Help::kNone) << "somebody wants to look at it";
  End(rank);
}

TEST(RankWatch, GivesAnMpirunTimeToEndAfterItsRanks) {
  Process rank = Start(true);
  RankWatch watch(Id(), seconds(10));
  watch.Learn();
  End(rank);
  const RankWatch::Clock::time_point now{};
  EXPECT_EQ(watch.Look(false, now), Help::kNone);
  EXPECT_EQ(watch.Look(true, now + seconds(1)), Help::kContinue);
  EXPECT_EQ(watch.Look(false, now + seconds(9)), Help::kNone);
  EXPECT_EQ(watch.Look(true, now + seconds(10)), Help::kKill);
}

TEST(RankWatch, GivesTimeFromWhenTheLastRankHasEnded) {
  Process one = Start(true);
  Process other = Start(true);
  RankWatch watch(Id(), seconds(10));
  watch.Learn();
  const RankWatch::Clock::time_point now{};
  End(one);
  EXPECT_EQ(watch.Look(false, now), Help::kNone);
  EXPECT_EQ(watch.Look(false, now + seconds(1000)), Help::kNone) << "the other one runs";
  End(other);
  EXPECT_EQ(watch.Look(false, now + seconds(1001)), Help::kNone);
  EXPECT_EQ(watch.Look(false, now + seconds(1010)), Help::kNone);
  EXPECT_EQ(watch.Look(false, now + seconds(1011)), Help::kKill);
}

TEST(RankWatch, WakesAnMpirunThatWasStoppedBeforeAnyRankWasThere) {
  Process no_rank = Start(false);
  RankWatch watch(Id(), seconds(10));
  const RankWatch::Clock::time_point now{};
  EXPECT_EQ(watch.Look(false, now), Help::kNone) << "it starts";
  EXPECT_EQ(watch.Look(false, now + seconds(1000)), Help::kNone) << "its ranks may all be on other hosts";
  EXPECT_EQ(watch.Look(true, now + seconds(2000)), Help::kContinue);
  End(no_rank);
}

TEST(RankWatch, LearnsOfRanksWhereverAnMpirunIsStopped) {
  RankWatch watch(Id(), seconds(10));
  Process rank = Start(true);
  const RankWatch::Clock::time_point now{};
  EXPECT_EQ(watch.Look(true, now), Help::kNone);
  End(rank);
  EXPECT_EQ(watch.Look(true, now + seconds(1)), Help::kContinue);
  EXPECT_EQ(watch.Look(true, now + seconds(11)), Help::kKill);
}

}  // namespace
}  // namespace slotwise::launch
