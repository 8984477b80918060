// Tests how calls are counted.
#include "server/intake/call_stats.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

namespace slotwise {
namespace {

using std::chrono::nanoseconds;

EndedCall Call(CallKind kind, StatusCode code = StatusCode::kOk) {
  EndedCall call{.kind = kind,
                 .code = code,
                 .samples = 2,
                 .keys = 3,
                 .bytes_in = 4,
                 .bytes_out = 5,
                 .latency = nanoseconds(1000)};
  call.stages[static_cast<std::size_t>(CallStage::kDecode)] = nanoseconds(300);
  return call;
}

RankStats Read(const CallCounters& counters) {
  RankStats stats;
  counters.Read(stats);
  return stats;
}

TEST(CallCounters, CountLookupsAndPushesApart) {
  CallCounters counters;
  counters.Count(Call(CallKind::kLookup));
  counters.Count(Call(CallKind::kLookup));
  counters.Count(Call(CallKind::kPush));
  counters.Count(Call(CallKind::kOther));
  const RankStats stats = Read(counters);
  EXPECT_EQ(stats.lookups.calls, 2U);
  EXPECT_EQ(stats.lookups.samples, 4U);
  EXPECT_EQ(stats.lookups.keys, 6U);
  EXPECT_EQ(stats.lookups.bytes_in, 8U);
  EXPECT_EQ(stats.lookups.bytes_out, 10U);
  EXPECT_EQ(stats.lookups.latency.sum_ns, 2000U);
  EXPECT_EQ(stats.lookups.latency.count(), 2U);
  EXPECT_EQ(stats.lookups[CallStage::kDecode].sum_ns, 600U);
  EXPECT_EQ(stats.lookups[CallStage::kDecode].buckets.back(), 2U);
  EXPECT_EQ(stats.lookups[CallStage::kDecode].buckets.size(), DurationStats::BucketOf(300) + 1);
  EXPECT_EQ(stats.lookups[CallStage::kSend].count(), 0U) << "a stage that no call had";
  EXPECT_EQ(stats.pushes.calls, 1U);
  EXPECT_EQ(stats.pushes.refused(), 0U);
  EXPECT_GT(stats.uptime_ns, 0U);
}

TEST(CallCounters, ARefusedCallIsCountedByItsCodeAlone) {
  CallCounters counters;
  counters.Count(Call(CallKind::kPush, StatusCode::kUnavailable));
  counters.Count(Call(CallKind::kPush, StatusCode::kInternal));
  counters.Count(Call(CallKind::kPush, StatusCode::kUnavailable));
  const CallStats pushes = Read(counters).pushes;
  EXPECT_EQ(pushes.calls, 0U);
  EXPECT_EQ(pushes.keys, 0U);
  EXPECT_EQ(pushes.latency.count(), 0U);
  EXPECT_EQ(pushes.bytes_in, 12U) << "its bytes have come all the same";
  EXPECT_EQ(pushes.refusals, (std::map<std::string, std::uint64_t>{{"INTERNAL", 1}, {"UNAVAILABLE", 2}}));
}

TEST(CallCounters, ARefusalOfABusyRankIsNoneForGood) {
  CallCounters counters;
  EndedCall busy = Call(CallKind::kLookup, StatusCode::kResourceExhausted);
  counters.Count(busy);
  busy.busy = true;
  counters.Count(busy);
  counters.Count(busy);
  EXPECT_EQ(Read(counters).lookups.refusals,
            (std::map<std::string, std::uint64_t>{{"BUSY", 2}, {"RESOURCE_EXHAUSTED", 1}}));
}

TEST(CallCounters, LoseNothingOfManyThreads) {
  CallCounters counters;
  constexpr std::uint64_t kCalls = 20'000;
  constexpr std::uint64_t kThreads = 4;
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&counters] {
        for (std::uint64_t i = 0; i < kCalls; ++i) counters.Count(Call(CallKind::kLookup));
      });
    }
  }
  const CallStats lookups = Read(counters).lookups;
  EXPECT_EQ(lookups.calls, kThreads * kCalls);
  EXPECT_EQ(lookups.latency.count(), kThreads * kCalls);
  EXPECT_EQ(lookups.latency.sum_ns, 1000 * kThreads * kCalls);
}

}  // namespace
}  // namespace slotwise
