// A rank's counts survive the way to the wire and back.
#include "wire/stats_proto.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace slotwise {
namespace {

CallStats Calls(std::uint64_t first) {
  CallStats calls{.calls = first,
                  .samples = first + 1,
                  .keys = first + 2,
                  .bytes_in = first + 3,
                  .bytes_out = first + 4,
                  .refusals = {{"NOT_FOUND", first + 5}},
                  .latency = {first + 6, {0, first + 7}}};
  for (std::size_t s = 0; s < kCallStages; ++s) calls.stages[s] = {first + 10 + s, {first + 20 + s}};
  return calls;
}

TEST(StatsProto, EveryNumberComesBack) {
  const RankStats stats{.rank = 1,
                        .instance = 2,
                        .started = 3,
                        .uptime_ns = 4,
                        .lookups = Calls(100),
                        .pushes = Calls(200),
                        .rounds = 5,
                        .calls_under_way = 6,
                        .queued_requests = 7,
                        .pending_requests = 8,
                        .queue_bytes = 9,
                        .max_queue_bytes = 10,
                        .received_bytes = 11,
                        .max_received_bytes = 12,
                        .shared_bytes = 15,
                        .max_shared_bytes = 16,
                        .gpu_shared_bytes = 19,
                        .max_gpu_shared_bytes = 20,
                        .data_connections = 13,
                        .busy_ns = 14};
  EXPECT_EQ(FromProto(ToProto(stats)), stats);
}

TEST(StatsProto, AStageOfALaterServerIsLeftOut) {
  v1::GetStatsReply reply;
  (*reply.mutable_lookups()->mutable_stages())["to come"].set_sum_ns(3);
  (*reply.mutable_lookups()->mutable_stages())["send"].set_sum_ns(4);
  const RankStats stats = FromProto(reply);
  EXPECT_EQ(stats.lookups[CallStage::kSend].sum_ns, 4U);
  EXPECT_EQ(stats.lookups[CallStage::kDecode].sum_ns, 0U);
}

}  // namespace
}  // namespace slotwise
