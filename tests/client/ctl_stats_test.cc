// Tests what slotwise-ctl computes from readings of a server's counts.
#include <gmock/gmock.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "client/ctl/stats.h"

namespace slotwise::ctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::uint64_t kMs = 1'000'000;

DurationStats Times(std::uint64_t count, std::uint64_t ns) {
  DurationStats stats{.sum_ns = count * ns, .buckets = {}};
  stats.buckets.resize(DurationStats::BucketOf(ns) + 1);
  stats.buckets.back() = count;
  return stats;
}

// Calls that each took `ns` in these stages.
CallStats Calls(std::uint64_t count, std::initializer_list<std::pair<CallStage, std::uint64_t>> stages) {
  CallStats calls{.calls = count, .keys = 10 * count};
  std::uint64_t sum = 0;
  for (const auto& [stage, ns] : stages) {
    calls.stages[static_cast<std::size_t>(stage)] = Times(count, ns);
    sum += ns;
  }
  calls.latency = Times(count, sum);
  return calls;
}

RankStats Reading(std::uint64_t instance, std::uint64_t seconds, CallStats lookups) {
  return {.instance = instance, .uptime_ns = seconds * 1'000'000'000, .lookups = std::move(lookups)};
}

TEST(FindSlowestStage, IsWhereCallsSpentTheMostTime) {
  const auto slowest = FindSlowestStage(
      Calls(4, {{CallStage::kDecode, 1 * kMs}, {CallStage::kRound, 2 * kMs}, {CallStage::kSend, kMs}}));
  ASSERT_TRUE(slowest);
  EXPECT_EQ(slowest->stage, CallStage::kRound);
  EXPECT_DOUBLE_EQ(slowest->share, 0.5);
  EXPECT_FALSE(FindSlowestStage(CallStats()));
}

TEST(ShowInterval, HasCountsByTheirNamesIn01Too) {
  RankStats now = Reading(7, 1, {});
  now.queued_requests = 11;
  now.pending_requests = 12;
  now.queue_bytes = 13;
  now.max_queue_bytes = 14;
  now.gpu_shared_bytes = 15;
  now.max_gpu_shared_bytes = 16;
  const auto rank = ShowInterval({}, std::vector<RankStats>{now}).json["ranks"][0];
  for (const auto& [name, older, value] : std::initializer_list<std::tuple<std::string, std::string, int>>{
           {"queued_requests", "inbox_requests", 11},
           {"pending_requests", "announced_requests", 12},
           {"queue_bytes", "inbox_bytes", 13},
           {"max_queue_bytes", "max_inbox_bytes", 14},
           {"gpu_shared_bytes", "gpu_arena_bytes", 15},
           {"max_gpu_shared_bytes", "max_gpu_arena_bytes", 16}}) {
    EXPECT_EQ(rank[name], value);
    EXPECT_EQ(rank[older], value);
  }
  EXPECT_EQ(rank["instance"], "7");
  EXPECT_EQ(rank["incarnation"], "7");
}

TEST(FindSlowestStage, WeighsAStageByItsTimeAndNotByOneCall) {
  CallStats calls = Calls(1000, {{CallStage::kQueue, kMs}});
  calls.Add(Calls(1, {{CallStage::kJournal, 500 * kMs}}));
  EXPECT_EQ(FindSlowestStage(calls)->stage, CallStage::kQueue);
}

TEST(ShowInterval, IsOfTheIntervalAlone) {
  const auto before = Calls(1000, {{CallStage::kRound, 50 * kMs}});
  auto after = before;
  after.Add(Calls(20, {{CallStage::kRound, 1 * kMs}, {CallStage::kExchange, 3 * kMs}}));
  const std::vector<RankStats> first{Reading(1, 100, before)};
  const std::vector<RankStats> second{Reading(1, 102, after)};
  const Answer answer = ShowInterval(first, second);
  EXPECT_EQ(answer.json["ranks"][0]["seconds"], 2);
  EXPECT_EQ(answer.json["lookups"]["calls"], 20);
  EXPECT_NEAR(answer.json["lookups"]["latency"]["p99_us"].get<double>(), 4000, 800);
  EXPECT_EQ(answer.json["slowest_stage"], "exchange");
  EXPECT_THAT(answer.text,
              HasSubstr("slowest stage: exchange, 75 % of the time; of lookups exchange, 75 %\n"));
  EXPECT_THAT(answer.text, HasSubstr("10.0  "));  // lookups a second
  EXPECT_THAT(answer.text, HasSubstr("exchange  3.00 ms   75 %"));
  EXPECT_THAT(answer.text, HasSubstr("round     1.00 ms   25 %"));
  EXPECT_THAT(answer.text, HasSubstr("journal         -"));
  EXPECT_THAT(answer.text, Not(HasSubstr("started again")));
}

TEST(ShowInterval, ARankThatWasStartedAgainShowsWhatItDidSince) {
  const std::vector<RankStats> before{Reading(1, 4, Calls(1000, {{CallStage::kRound, kMs}}))};
  const std::vector<RankStats> after{Reading(2, 5, Calls(10, {{CallStage::kSend, kMs}})),
                                     Reading(2, 5, Calls(30, {{CallStage::kSend, kMs}}))};
  const Answer answer = ShowInterval(before, after);
  EXPECT_EQ(answer.json["lookups"]["calls"], 40);
  EXPECT_EQ(answer.json["slowest_stage"], "send");
  EXPECT_THAT(answer.text, HasSubstr("rank 0 was started again"));
  EXPECT_THAT(answer.text, HasSubstr("all"));
  EXPECT_THAT(answer.text, HasSubstr(" 8.0 "));  // 40 lookups in 5 s
}

TEST(ShowInterval, TellsRetriesFromRefusalsAndNamesAStuckRank) {
  RankStats now = Reading(1, 10, {});
  now.pushes.refusals = {{"UNAVAILABLE", 20}, {"BUSY", 30}, {"NOT_FOUND", 70}};
  now.busy_ns = 12'000 * kMs;
  now.queued_requests = 3;
  now.pending_requests = 4;
  now.queue_bytes = 50;
  now.max_queue_bytes = 100;
  const Answer answer = ShowInterval({}, {&now, 1});
  EXPECT_THAT(answer.text, HasSubstr("7  50 %        5.0        7.0\n"));
  EXPECT_THAT(answer.text, HasSubstr("rank 0 has been at the same round for 12.0 s\n"));
  EXPECT_THAT(answer.text, HasSubstr("no lookup or push was answered\n"));
  EXPECT_TRUE(answer.json["slowest_stage"].is_null());
}

}  // namespace
}  // namespace slotwise::ctl
