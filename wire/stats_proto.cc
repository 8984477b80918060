#include "wire/stats_proto.h"

#include <cstddef>
#include <string>

namespace slotwise {
namespace {

std::string NameOf(std::size_t stage) { return std::string(ToString(static_cast<CallStage>(stage))); }

DurationStats FromProto(const v1::DurationStats& wire) {
  return {.sum_ns = wire.sum_ns(), .buckets = {wire.buckets().begin(), wire.buckets().end()}};
}

v1::DurationStats ToProto(const DurationStats& stats) {
  v1::DurationStats wire;
  wire.set_sum_ns(stats.sum_ns);
  wire.mutable_buckets()->Add(stats.buckets.begin(), stats.buckets.end());
  return wire;
}

CallStats FromProto(const v1::CallStats& wire) {
  CallStats stats{.calls = wire.calls(),
                  .samples = wire.samples(),
                  .keys = wire.keys(),
                  .bytes_in = wire.bytes_in(),
                  .bytes_out = wire.bytes_out(),
                  .refusals = {wire.refusals().begin(), wire.refusals().end()},
                  .latency = FromProto(wire.latency())};
  for (std::size_t s = 0; s < kCallStages; ++s) {
    const auto stage = wire.stages().find(NameOf(s));
    if (stage != wire.stages().end()) stats.stages[s] = FromProto(stage->second);
  }
  return stats;
}

v1::CallStats ToProto(const CallStats& stats) {
  v1::CallStats wire;
  wire.set_calls(stats.calls);
  wire.set_samples(stats.samples);
  wire.set_keys(stats.keys);
  wire.set_bytes_in(stats.bytes_in);
  wire.set_bytes_out(stats.bytes_out);
  wire.mutable_refusals()->insert(stats.refusals.begin(), stats.refusals.end());
  *wire.mutable_latency() = ToProto(stats.latency);
  for (std::size_t s = 0; s < kCallStages; ++s)
    (*wire.mutable_stages())[NameOf(s)] = ToProto(stats.stages[s]);
  return wire;
}

}  // namespace

RankStats FromProto(const v1::GetStatsReply& wire) {
  return {.rank = wire.rank(),
          .instance = wire.incarnation(),
          .started = wire.started(),
          .uptime_ns = wire.uptime_ns(),
          .lookups = FromProto(wire.lookups()),
          .pushes = FromProto(wire.pushes()),
          .rounds = wire.rounds(),
          .calls_under_way = wire.calls_under_way(),
          .queued_requests = wire.inbox_requests(),
          .pending_requests = wire.announced_requests(),
          .queue_bytes = wire.inbox_bytes(),
          .max_queue_bytes = wire.max_inbox_bytes(),
          .received_bytes = wire.received_bytes(),
          .max_received_bytes = wire.max_received_bytes(),
          .shared_bytes = wire.shared_bytes(),
          .max_shared_bytes = wire.max_shared_bytes(),
          .gpu_shared_bytes = wire.gpu_arena_bytes(),
          .max_gpu_shared_bytes = wire.max_gpu_arena_bytes(),
          .data_connections = wire.data_connections(),
          .busy_ns = wire.busy_ns()};
}

v1::GetStatsReply ToProto(const RankStats& stats) {
  v1::GetStatsReply wire;
  wire.set_rank(stats.rank);
  wire.set_incarnation(stats.instance);
  wire.set_started(stats.started);
  wire.set_uptime_ns(stats.uptime_ns);
  *wire.mutable_lookups() = ToProto(stats.lookups);
  *wire.mutable_pushes() = ToProto(stats.pushes);
  wire.set_rounds(stats.rounds);
  wire.set_calls_under_way(stats.calls_under_way);
  wire.set_inbox_requests(stats.queued_requests);
  wire.set_announced_requests(stats.pending_requests);
  wire.set_inbox_bytes(stats.queue_bytes);
  wire.set_max_inbox_bytes(stats.max_queue_bytes);
  wire.set_received_bytes(stats.received_bytes);
  wire.set_max_received_bytes(stats.max_received_bytes);
  wire.set_shared_bytes(stats.shared_bytes);
  wire.set_gpu_arena_bytes(stats.gpu_shared_bytes);
  wire.set_max_gpu_arena_bytes(stats.max_gpu_shared_bytes);
  wire.set_max_shared_bytes(stats.max_shared_bytes);
  wire.set_data_connections(stats.data_connections);
  wire.set_busy_ns(stats.busy_ns);
  return wire;
}

}  // namespace slotwise
