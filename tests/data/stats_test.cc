// GetStats counts lookups and pushes of both transports, and answers while rounds are stuck.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <thread>

#include "server/engine/operations/create_table.h"
#include "tests/data/data_server_fixture.h"

namespace slotwise {
namespace {

using test::MetClient;

class StatsTest : public DataServerTest {
 protected:
  v1::GetStatsReply Stats() {
    v1::GetStatsReply reply;
    const grpc::Status status = Ask(admin_, &Admin::GetStats, {}, &reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return reply;
  }
  // A call is counted once it is over, which its caller may hear a little earlier.
  v1::GetStatsReply StatsOnce(const std::function<bool(const v1::GetStatsReply&)>& holds) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    for (;;) {
      v1::GetStatsReply stats = Stats();
      if (holds(stats) || std::chrono::steady_clock::now() > deadline) return stats;
      std::this_thread::yield();
    }
  }
  static std::uint64_t Count(const v1::DurationStats& times) {
    std::uint64_t count = 0;
    for (const std::uint64_t bucket : times.buckets()) count += bucket;
    return count;
  }
};

TEST_F(StatsTest, CountsWhatCameThroughBothDoors) {
  OpenWithAds();
  EXPECT_EQ(Stats().lookups().calls(), 0U);
  MetClient client(server_->port());

  const auto [lookup, keys] = Lookup(1);
  const auto looked_up = client.Ask(lookup, keys);
  const auto [push, gradients] = Push(2, WholePush(1));
  client.Ask(push, gradients);

  v1::LookupReply by_grpc;
  ASSERT_TRUE(Ask(embedding_, &Embedding::Lookup, SmallLookup(), &by_grpc).ok());
  ASSERT_TRUE(Ask(embedding_, &Embedding::Push, WholePush(2)).ok());
  v1::LookupManyRequest many;
  for (int i = 0; i < 3; ++i) *many.add_lookups() = SmallLookup();
  v1::LookupManyReply answers;
  ASSERT_TRUE(Ask(embedding_, &Embedding::LookupMany, many, &answers).ok());

  const auto stats = StatsOnce([](const auto& s) { return s.lookups().calls() + s.pushes().calls() >= 5; });
  EXPECT_EQ(stats.lookups().calls(), 3U) << "a call of several tables is one";
  EXPECT_EQ(stats.lookups().samples(), 5 * 2U);
  EXPECT_EQ(stats.lookups().keys(), 5 * 4U);
  EXPECT_EQ(stats.lookups().bytes_in(),
            lookup.ByteSizeLong() + keys.size() + SmallLookup().ByteSizeLong() + many.ByteSizeLong());
  EXPECT_EQ(stats.lookups().bytes_out(), looked_up.head.ByteSizeLong() + looked_up.body.size() +
                                             by_grpc.ByteSizeLong() + answers.ByteSizeLong());
  EXPECT_EQ(stats.pushes().calls(), 2U);
  EXPECT_EQ(stats.pushes().keys(), 2 * 4U);
  EXPECT_EQ(stats.pushes().bytes_in(), push.ByteSizeLong() + gradients.size() + WholePush(2).ByteSizeLong());
  EXPECT_TRUE(stats.lookups().refusals().empty());
  for (const v1::CallStats* calls : {&stats.lookups(), &stats.pushes()}) {
    EXPECT_EQ(Count(calls->latency()), calls->calls());
    std::uint64_t sum = 0;
    for (const auto& [name, times] : calls->stages()) {
      EXPECT_EQ(Count(times), name == "journal" ? 0 : calls->calls()) << name;
      sum += times.sum_ns();
    }
    EXPECT_EQ(calls->latency().sum_ns(), sum) << "the stages are the whole call";
    EXPECT_GT(calls->stages().at("round").sum_ns(), 0U);
    EXPECT_EQ(calls->stages().at("exchange").sum_ns(), 0U) << "there is one rank";
  }
  EXPECT_GE(stats.rounds(), 5U);
  EXPECT_EQ(stats.incarnation(), engine_->instance());
  EXPECT_GT(stats.uptime_ns(), 0U);
  EXPECT_EQ(stats.data_connections(), 1U);
  EXPECT_EQ(stats.max_inbox_bytes(), EngineOptions().max_queue_bytes);
  // A caller may have its answer a moment before the call is over.
  const auto idle = StatsOnce([](const auto& s) {
    return s.calls_under_way() == 0 && s.announced_requests() == 0 && s.busy_ns() == 0;
  });
  EXPECT_EQ(idle.calls_under_way(), 0U);
  EXPECT_EQ(idle.announced_requests(), 0U);
  EXPECT_EQ(idle.busy_ns(), 0U);
}

TEST_F(StatsTest, CountsRefusalsByTheirCodes) {
  OpenWithAds();
  v1::LookupRequest of_none = SmallLookup();
  of_none.set_table("none");
  EXPECT_EQ(Ask(embedding_, &Embedding::Lookup, of_none).error_code(), grpc::StatusCode::NOT_FOUND);
  MetClient client(server_->port());
  client.Ask(Lookup(1, of_none));
  v1::PushRequest wrong = WholePush(1);
  wrong.set_gradients("");
  client.Ask(Push(2, wrong));

  const auto stats = StatsOnce([](const auto& s) {
    return s.lookups().refusals().contains("NOT_FOUND") && s.lookups().refusals().at("NOT_FOUND") == 2 &&
           s.pushes().refusals().contains("INVALID_ARGUMENT");
  });
  EXPECT_EQ(stats.lookups().refusals().size(), 1U);
  EXPECT_EQ(stats.lookups().refusals().at("NOT_FOUND"), 2U);
  EXPECT_EQ(stats.pushes().refusals().at("INVALID_ARGUMENT"), 1U);
  EXPECT_EQ(stats.lookups().calls() + stats.pushes().calls(), 0U);
  EXPECT_EQ(Count(stats.lookups().latency()), 0U);
}

TEST_F(StatsTest, AnswersWhileARoundIsStuck) {
  OpenWithAds();
  std::promise<void> stuck, go_on;
  TableOptions other = AdsTable();
  other.name = TableName("other");
  engine_->Submit(CreateTableRequest{.options = other, .done = [&](const auto&) {
                                       stuck.set_value();
                                       go_on.get_future().wait();
                                     }});
  stuck.get_future().wait();
  MetClient client(server_->port());
  ASSERT_TRUE(client.Send(Lookup(1)));
  const auto stats = StatsOnce([](const auto& s) { return s.inbox_requests() == 1; });
  EXPECT_EQ(stats.inbox_requests(), 1U);
  EXPECT_EQ(stats.calls_under_way(), 1U);
  EXPECT_GT(stats.inbox_bytes(), 0U);
  EXPECT_GT(stats.busy_ns(), 0U);
  EXPECT_EQ(stats.lookups().calls(), 0U);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_GT(Stats().busy_ns(), stats.busy_ns());
  const std::chrono::nanoseconds waited = std::chrono::steady_clock::now() - begin;
  go_on.set_value();
  ASSERT_TRUE(client.Receive());
  const auto after = StatsOnce([](const auto& s) { return s.lookups().calls() == 1; });
  EXPECT_EQ(after.inbox_requests(), 0U);
  EXPECT_GE(after.lookups().stages().at("inbox").sum_ns(), static_cast<std::uint64_t>(waited.count()));
}

}  // namespace
}  // namespace slotwise
