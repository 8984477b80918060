#include "server/rpc/admin_service.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/engine/operations/create_table.h"
#include "server/engine/operations/describe_session.h"
#include "server/engine/operations/drop_table.h"
#include "server/engine/operations/set_learning_rate.h"
#include "server/engine/operations/summarize.h"
#include "server/intake/audit_log.h"
#include "server/intake/check.h"
#include "server/intake/find_table.h"
#include "server/intake/quoted.h"
#include "server/rpc/admin_answers.h"
#include "server/rpc/call.h"
#include "server/rpc/grpc_status.h"
#include "wire/stats_proto.h"
#include "wire/table_options_proto.h"

namespace slotwise {
namespace {

std::string Hex(const DigestSums& digest) {
  std::array<char, 33> text;
  std::snprintf(text.data(), text.size(), "%016" PRIx64 "%016" PRIx64, digest.high, digest.low);
  return text.data();
}

std::uint64_t RowsOf(const TableSummary& summary) {
  std::uint64_t rows = 0;
  for (const ShardUsage& shard : summary.shards) rows += shard.rows;
  return rows;
}

}  // namespace

AdminService::AdminService(Engine& engine, WatchedGate& gate, const RequestLimits& limits,
                           std::chrono::milliseconds default_deadline)
    : engine_(engine),
      gate_(gate),
      limits_(limits),
      default_deadline_(default_deadline),
      checkpoints_(engine.checkpoints()) {}

void AdminService::SetTopology(Topology topology) {
  const std::lock_guard lock(mutex_);
  topology_ = std::move(topology);
}

grpc::ServerUnaryReactor* AdminService::CreateTable(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request,
                                                    grpc::ByteBuffer* reply) {
  auto call = Call::Begin(*context, gate_, default_deadline_);
  grpc::ServerUnaryReactor* reactor = call.get();
  if (call->answered()) return reactor;
  const auto message = Parse<v1::CreateTableRequest>(*request, *call);
  if (!message) return reactor;
  const auto options = FromProto(message->options());
  const Status allowed = options.ok() ? Allow(call->caller().principal(), Rights::kAdmin,
                                              options->name.view(), Quoted(options->name.view()))
                                      : options.status();
  if (!allowed.ok()) {
    call->Fail(allowed);
    return reactor;
  }
  const Caller caller = call->caller();
  auto done = [call = std::move(call), reply, options = *options, caller](const Result<CreatedTable>& table) {
    if (!table.ok()) return call->Fail(table.status());
    if (table->created) LogDeed(Deed::kMakes, "table " + options.name.str() + " is made", caller);
    v1::CreateTableReply answer;
    *answer.mutable_options() = ToProto(options);
    answer.set_created(table->created);
    Answer(*call, answer, reply);
  };
  engine_.Submit(CreateTableRequest{.options = *options, .done = std::move(done), .caller = caller});
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::DropTable(grpc::CallbackServerContext* context,
                                                  const grpc::ByteBuffer* request, grpc::ByteBuffer* reply) {
  auto call = Call::Begin(*context, gate_, default_deadline_);
  grpc::ServerUnaryReactor* reactor = call.get();
  if (call->answered()) return reactor;
  const auto message = Parse<v1::DropTableRequest>(*request, *call);
  if (!message) return reactor;
  const auto table = TableNamed(engine_, call->caller(), message->table(), Rights::kAdmin);
  if (!table.ok()) {
    call->Fail(table.status());
    return reactor;
  }
  const Caller caller = call->caller();
  auto done = [call = std::move(call), reply, name = table->options.name, caller](const Status& status) {
    if (!status.ok()) return call->Fail(status);
    LogDeed(Deed::kTakesAway, "table " + name.str() + " is dropped", caller);
    Answer(*call, v1::DropTableReply(), reply);
  };
  engine_.Submit(DropTableRequest{.table = table->id, .done = std::move(done), .caller = caller});
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::ListTables(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request, grpc::ByteBuffer* reply) {
  auto call = Call::Begin(*context, gate_, default_deadline_);
  if (call->answered() || !Parse<v1::ListTablesRequest>(*request, *call)) return call.get();
  auto tables = engine_.ListTables();
  std::ranges::sort(tables, {}, [](const TableInfo& table) { return table.options.name.view(); });
  v1::ListTablesReply answer;
  const Principal* const who = call->caller().principal();
  for (const TableInfo& table : tables) {
    if (who == nullptr || who->On(table.options.name.view()) != Rights::kNone)
      *answer.add_tables() = ToProto(table.options);
  }
  Answer(*call, answer, reply);
  return call.get();
}

grpc::ServerUnaryReactor* AdminService::DescribeTable(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer* request,
                                                      grpc::ByteBuffer* reply) {
  auto call = Call::Begin(*context, gate_, default_deadline_);
  grpc::ServerUnaryReactor* reactor = call.get();
  if (call->answered()) return reactor;
  const auto message = Parse<v1::DescribeTableRequest>(*request, *call);
  if (!message) return reactor;
  const auto table = TableNamed(engine_, call->caller(), message->table(), Rights::kNone);
  if (!table.ok()) {
    call->Fail(table.status());
    return reactor;
  }
  const Caller caller = call->caller();
  const Acknowledged acknowledged = AcknowledgedIn(message->acknowledged());
  auto done = [this, call = std::move(call), reply, options = table->options,
               acknowledged](const Result<TableSummary>& summary) {
    if (!summary.ok()) return call->Fail(summary.status());
    v1::DescribeTableReply answer;
    answer.set_lost_from(engine_.LostFrom(summary->lineage, acknowledged));
    *answer.mutable_options() = ToProto(options);
    answer.set_steps(summary->steps);
    answer.set_lineage(summary->lineage);
    answer.set_learning_rate(summary->learning_rate);
    answer.set_base_learning_rate(summary->base_learning_rate);
    for (const ShardUsage& shard : summary->shards) {
      v1::ShardInfo& info = *answer.add_shards();
      info.set_rows(shard.rows);
      info.set_cells(shard.cells);
      info.set_bytes(shard.bytes);
    }
    answer.mutable_rounds()->set_all_bags(summary->rounds.all_bags);
    answer.mutable_rounds()->set_owned_bags(summary->rounds.owned_bags);
    Answer(*call, answer, reply);
  };
  engine_.Submit(
      SummarizeRequest{.table = table->id, .with_digest = false, .done = std::move(done), .caller = caller});
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::SetLearningRate(grpc::CallbackServerContext* context,
                                                        const grpc::ByteBuffer* request,
                                                        grpc::ByteBuffer* reply) {
  auto call = Call::Begin(*context, gate_, default_deadline_);
  grpc::ServerUnaryReactor* reactor = call.get();
  if (call->answered()) return reactor;
  const auto message = Parse<v1::SetLearningRateRequest>(*request, *call);
  if (!message) return reactor;
  const auto table = TableNamed(engine_, call->caller(), message->table(), Rights::kAdmin);
  const Status legal = table.ok() ? ValidateLearningRate(message->learning_rate()) : table.status();
  if (!legal.ok()) {
    call->Fail(legal);
    return reactor;
  }
  const Caller caller = call->caller();
  auto done = [call = std::move(call), reply, name = table->options.name, rate = message->learning_rate(),
               caller](const Status& status) {
    if (!status.ok()) return call->Fail(status);
    LogDeed(Deed::kSets, fmt::format("table {} learns at the rate {}", name.view(), rate), caller);
    Answer(*call, v1::SetLearningRateReply(), reply);
  };
  engine_.Submit(SetLearningRateRequest{.table = table->id,
                                        .learning_rate = message->learning_rate(),
                                        .done = std::move(done),
                                        .caller = caller});
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::GetTopology(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request,
                                                    grpc::ByteBuffer* reply) {
  auto call = Call::Begin(*context, gate_, default_deadline_);
  if (call->answered() || !Parse<v1::GetTopologyRequest>(*request, *call)) return call.get();
  v1::GetTopologyReply answer;
  {
    const std::lock_guard lock(mutex_);
    answer.set_version(topology_.version);
    for (const RankPlace& place : topology_.ranks) {
      v1::RankInfo& info = *answer.add_ranks();
      info.set_address(place.address);
      info.set_device(place.device);
      info.set_local(place.local);
      info.set_gpu(place.gpu);
      if (!place.local.empty()) info.set_local_user(place.local_user);
    }
    answer.set_rank(static_cast<std::uint32_t>(Value(topology_.rank)));
  }
  answer.set_max_message_bytes(limits_.max_message_bytes);
  answer.set_max_round_bytes(limits_.max_round_bytes);
  answer.set_data_version(limits_.data_version);
  answer.set_incarnation(engine_.incarnation());
  answer.set_epoch(engine_.epoch());
  Answer(*call, answer, reply);
  return call.get();
}

RankStats AdminService::Stats() const {
  RankStats stats;
  {
    const std::lock_guard lock(mutex_);
    stats.rank = static_cast<std::uint32_t>(Value(topology_.rank));
  }
  gate_.counters().Read(stats);
  const EngineLoad engine = engine_.Load();
  const DataLoad data = data_load_();
  stats.incarnation = engine_.incarnation();
  stats.rounds = engine.rounds;
  stats.calls_under_way = gate_.inside();
  stats.inbox_requests = engine.inbox_requests;
  stats.announced_requests = engine.announced_requests;
  stats.inbox_bytes = engine.inbox_bytes;
  stats.max_inbox_bytes = engine.max_inbox_bytes;
  stats.received_bytes = data.received_bytes;
  stats.max_received_bytes = data.max_received_bytes;
  stats.shared_bytes = data.shared_bytes;
  stats.max_shared_bytes = data.max_shared_bytes;
  stats.gpu_arena_bytes = data.device_arena_bytes;
  stats.max_gpu_arena_bytes = data.max_device_arena_bytes;
  stats.data_connections = data.connections;
  stats.busy_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(engine_.BusyFor()).count());
  return stats;
}

grpc::ServerUnaryReactor* AdminService::GetStats(grpc::CallbackServerContext* context,
                                                 const grpc::ByteBuffer* request, grpc::ByteBuffer* reply) {
  auto call = Call::Begin(*context, gate_, default_deadline_, CallKind::kOther, Rights::kObserve);
  if (call->answered() || !Parse<v1::GetStatsRequest>(*request, *call)) return call.get();
  RankStats stats = Stats();
  --stats.calls_under_way;  // this one
  Answer(*call, ToProto(stats), reply);
  return call.get();
}

grpc::ServerUnaryReactor* AdminService::Digest(grpc::CallbackServerContext* context,
                                               const grpc::ByteBuffer* request, grpc::ByteBuffer* reply) {
  auto call = Call::Begin(*context, gate_, default_deadline_);
  grpc::ServerUnaryReactor* reactor = call.get();
  if (call->answered()) return reactor;
  const auto message = Parse<v1::DigestRequest>(*request, *call);
  if (!message) return reactor;
  const auto table = TableNamed(engine_, call->caller(), message->table(), Rights::kRead);
  if (!table.ok()) {
    call->Fail(table.status());
    return reactor;
  }
  const Caller caller = call->caller();
  auto done = [call = std::move(call), reply](const Result<TableSummary>& summary) {
    if (!summary.ok()) return call->Fail(summary.status());
    v1::DigestReply answer;
    answer.set_digest(Hex(summary->digest));
    answer.set_rows(RowsOf(*summary));
    answer.set_steps(summary->steps);
    Answer(*call, answer, reply);
  };
  engine_.Submit(
      SummarizeRequest{.table = table->id, .with_digest = true, .done = std::move(done), .caller = caller});
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::DescribeSession(grpc::CallbackServerContext* context,
                                                        const grpc::ByteBuffer* request,
                                                        grpc::ByteBuffer* reply) {
  auto call = Call::Begin(*context, gate_, default_deadline_);
  grpc::ServerUnaryReactor* reactor = call.get();
  if (call->answered()) return reactor;
  const auto message = Parse<v1::DescribeSessionRequest>(*request, *call);
  if (!message) return reactor;
  const Caller caller = call->caller();
  auto done = [call = std::move(call), reply, caller,
               incarnation = engine_.incarnation()](const Result<SessionSummary>& summary) {
    if (!summary.ok()) return call->Fail(summary.status());
    const Principal* const who = caller.principal();
    v1::DescribeSessionReply answer;
    answer.set_epoch(summary->epoch);
    answer.set_may_be_forgotten(summary->may_be_forgotten);
    answer.set_incarnation(incarnation);
    for (const SessionSummary::Sequence& sequence : summary->sequences) {
      // Whoever has no right on a table does not hear that there is one. Steps of several tables have no
      // name.
      if (who != nullptr && !sequence.name.empty() && who->On(sequence.name) == Rights::kNone) continue;
      v1::SessionTable& table = *answer.add_tables();
      table.set_table(sequence.name);
      table.set_last_step(sequence.last_step);
      answer.set_known(true);
      answer.set_last_step(std::max(answer.last_step(), sequence.last_step));
    }
    Answer(*call, answer, reply);
  };
  engine_.Submit(DescribeSessionRequest{
      .session = message->session(), .epoch = message->epoch(), .done = std::move(done), .caller = caller});
  return reactor;
}

}  // namespace slotwise
