#include "server/rpc/admin_service.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <utility>
#include <vector>

#include "server/rpc/call.h"
#include "server/rpc/grpc_status.h"
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

AdminService::AdminService(Engine& engine, Gate& gate, const RequestLimits& limits,
                           std::chrono::milliseconds default_deadline)
    : engine_(engine), gate_(gate), limits_(limits), default_deadline_(default_deadline) {}

void AdminService::SetTopology(Topology topology) {
  const std::lock_guard lock(mutex_);
  topology_ = std::move(topology);
}

Result<TableInfo> AdminService::Find(const std::string& name) const {
  if (auto table = engine_.FindTable(name)) return *table;
  return NotFound("there is no table " + Quoted(name));
}

grpc::ServerUnaryReactor* AdminService::CreateTable(grpc::CallbackServerContext* context,
                                                    const v1::CreateTableRequest* request,
                                                    v1::CreateTableReply* reply) {
  auto call = Call::Begin(*context, gate_, default_deadline_);
  grpc::ServerUnaryReactor* reactor = call.get();
  if (call->answered()) return reactor;
  const auto options = FromProto(request->options());
  if (!options.ok()) {
    call->Fail(options.status());
    return reactor;
  }
  auto done = [call = std::move(call), reply, options = *options,
               who = context->peer()](const Result<CreatedTable>& table) {
    if (!table.ok()) return call->Fail(table.status());
    if (table->created) spdlog::info("table {} is made, as {} asked", options.name.str(), who);
    call->Succeed([&] {
      *reply->mutable_options() = ToProto(options);
      reply->set_created(table->created);
    });
  };
  engine_.Submit(CreateTableRequest{.options = *options, .done = std::move(done)});
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::DropTable(grpc::CallbackServerContext* context,
                                                  const v1::DropTableRequest* request, v1::DropTableReply*) {
  auto call = Call::Begin(*context, gate_, default_deadline_);
  grpc::ServerUnaryReactor* reactor = call.get();
  if (call->answered()) return reactor;
  const auto table = Find(request->table());
  if (!table.ok()) {
    call->Fail(table.status());
    return reactor;
  }
  auto done = [call = std::move(call), name = table->options.name,
               who = context->peer()](const Status& status) {
    if (!status.ok()) return call->Fail(status);
    spdlog::info("table {} is dropped, as {} asked", name.str(), who);
    call->Succeed([] {});
  };
  engine_.Submit(DropTableRequest{.table = table->id, .done = std::move(done)});
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::ListTables(grpc::CallbackServerContext* context,
                                                   const v1::ListTablesRequest*, v1::ListTablesReply* reply) {
  auto call = Call::Begin(*context, gate_, default_deadline_);
  call->Succeed([&] {
    auto tables = engine_.ListTables();
    std::ranges::sort(tables, {}, [](const TableInfo& table) { return table.options.name.view(); });
    for (const TableInfo& table : tables) *reply->add_tables() = ToProto(table.options);
  });
  return call.get();
}

grpc::ServerUnaryReactor* AdminService::DescribeTable(grpc::CallbackServerContext* context,
                                                      const v1::DescribeTableRequest* request,
                                                      v1::DescribeTableReply* reply) {
  auto call = Call::Begin(*context, gate_, default_deadline_);
  grpc::ServerUnaryReactor* reactor = call.get();
  if (call->answered()) return reactor;
  const auto table = Find(request->table());
  if (!table.ok()) {
    call->Fail(table.status());
    return reactor;
  }
  auto done = [call = std::move(call), reply, options = table->options](const Result<TableSummary>& summary) {
    if (!summary.ok()) return call->Fail(summary.status());
    call->Succeed([&] {
      *reply->mutable_options() = ToProto(options);
      reply->set_steps(summary->steps);
      reply->set_learning_rate(summary->learning_rate);
      reply->set_base_learning_rate(summary->base_learning_rate);
      for (const ShardUsage& shard : summary->shards) {
        v1::ShardInfo& info = *reply->add_shards();
        info.set_rows(shard.rows);
        info.set_cells(shard.cells);
        info.set_bytes(shard.bytes);
      }
      reply->mutable_rounds()->set_all_bags(summary->rounds.all_bags);
      reply->mutable_rounds()->set_owned_bags(summary->rounds.owned_bags);
    });
  };
  engine_.Submit(SummarizeRequest{.table = table->id, .with_digest = false, .done = std::move(done)});
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::SetLearningRate(grpc::CallbackServerContext* context,
                                                        const v1::SetLearningRateRequest* request,
                                                        v1::SetLearningRateReply*) {
  auto call = Call::Begin(*context, gate_, default_deadline_);
  grpc::ServerUnaryReactor* reactor = call.get();
  if (call->answered()) return reactor;
  const auto table = Find(request->table());
  const Status legal = table.ok() ? ValidateLearningRate(request->learning_rate()) : table.status();
  if (!legal.ok()) {
    call->Fail(legal);
    return reactor;
  }
  auto done = [call = std::move(call)](const Status& status) {
    if (!status.ok()) return call->Fail(status);
    call->Succeed([] {});
  };
  engine_.Submit(SetLearningRateRequest{
      .table = table->id, .learning_rate = request->learning_rate(), .done = std::move(done)});
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::GetTopology(grpc::CallbackServerContext* context,
                                                    const v1::GetTopologyRequest*,
                                                    v1::GetTopologyReply* reply) {
  auto call = Call::Begin(*context, gate_, default_deadline_);
  call->Succeed([&] {
    const std::lock_guard lock(mutex_);
    reply->set_version(topology_.version);
    for (const RankPlace& place : topology_.ranks) {
      v1::RankInfo& info = *reply->add_ranks();
      info.set_address(place.address);
      info.set_device(place.device);
    }
    reply->set_rank(static_cast<std::uint32_t>(Value(topology_.rank)));
    reply->set_max_message_bytes(limits_.max_message_bytes);
    reply->set_max_round_bytes(limits_.max_round_bytes);
  });
  return call.get();
}

grpc::ServerUnaryReactor* AdminService::Digest(grpc::CallbackServerContext* context,
                                               const v1::DigestRequest* request, v1::DigestReply* reply) {
  auto call = Call::Begin(*context, gate_, default_deadline_);
  grpc::ServerUnaryReactor* reactor = call.get();
  if (call->answered()) return reactor;
  const auto table = Find(request->table());
  if (!table.ok()) {
    call->Fail(table.status());
    return reactor;
  }
  auto done = [call = std::move(call), reply](const Result<TableSummary>& summary) {
    if (!summary.ok()) return call->Fail(summary.status());
    call->Succeed([&] {
      reply->set_digest(Hex(summary->digest));
      reply->set_rows(RowsOf(*summary));
      reply->set_steps(summary->steps);
    });
  };
  engine_.Submit(SummarizeRequest{.table = table->id, .with_digest = true, .done = std::move(done)});
  return reactor;
}

}  // namespace slotwise
