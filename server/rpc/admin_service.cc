#include "server/rpc/admin_service.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/engine/operations/alter_table.h"
#include "server/engine/operations/create_table.h"
#include "server/engine/operations/describe_session.h"
#include "server/engine/operations/drop_table.h"
#include "server/engine/operations/list_evicted.h"
#include "server/engine/operations/remove_rows.h"
#include "server/engine/operations/set_learning_rate.h"
#include "server/engine/operations/summarize.h"
#include "server/intake/audit_log.h"
#include "server/intake/check.h"
#include "server/intake/find_table.h"
#include "server/intake/quoted.h"
#include "wire/stats_proto.h"
#include "wire/table_options_proto.h"

namespace slotwise {
namespace {

// The default deadline of a call that reads or writes all files of a checkpoint.
constexpr std::chrono::minutes kLongCall{24 * 60};

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

v1::Quantiles ToProto(const Quantiles& quantiles) {
  v1::Quantiles wire;
  wire.set_rows(quantiles.rows);
  wire.set_p0(quantiles.p0);
  wire.set_p10(quantiles.p10);
  wire.set_p50(quantiles.p50);
  wire.set_p90(quantiles.p90);
  wire.set_p99(quantiles.p99);
  wire.set_p100(quantiles.p100);
  return wire;
}

// Adds what the summary knows of the ages of rows.
void AddAges(const TableSummary& summary, v1::DescribeTableReply& answer) {
  if (summary.evicted_ages.count() > 0) {
    *answer.mutable_evicted_ages() = ToProto(summary.evicted_ages.quantiles());
    answer.set_youngest_evicted_age(summary.youngest_evicted);
  }
  if (const PowerHistogram& ages = summary.ages.ages; ages.count() > 0)
    *answer.mutable_ages() = ToProto(ages.quantiles());
  if (const PowerHistogram& counts = summary.ages.counts; counts.count() > 0)
    *answer.mutable_counts() = ToProto(counts.quantiles());
}

v1::EvictedBy EvictedBy(Removal why) {
  switch (why) {
    case Removal::kFull:
      return v1::EVICTED_BY_FULL_TABLE;
    case Removal::kExpired:
      return v1::EVICTED_BY_TIME_TO_LIVE;
    case Removal::kAsked:
      return v1::EVICTED_BY_REQUEST;
    case Removal::kErased:
      break;
  }
  return v1::EVICTED_BY_UNSPECIFIED;
}

v1::ListEvictedReply ToProto(const EvictedPage& page) {
  v1::ListEvictedReply reply;
  for (const EvictedPage::OfRound& gone : page.rounds) {
    v1::EvictedKeys& round = *reply.add_rounds();
    round.set_round(gone.round);
    round.set_by(EvictedBy(gone.why));
    round.set_keys(gone.keys.data(), gone.keys.size() * sizeof(Key));
  }
  reply.set_complete_after(page.complete_after);
  reply.set_gap(page.gap);
  reply.set_through_round(page.through_round);
  reply.set_more(page.more);
  reply.set_next_after_round(page.next_after_round);
  reply.set_next_keys_seen(page.next_keys_seen);
  reply.set_lineage(page.generation);
  return reply;
}

}  // namespace

AdminService::AdminService(Engine& engine, WatchedGate& gate, const RequestLimits& limits,
                           std::chrono::milliseconds default_deadline)
    : SmallMethods(*v1::CreateTableRequest::descriptor()->file()->FindServiceByName("Admin"), gate),
      engine_(engine),
      gate_(gate),
      limits_(limits),
      checkpoints_(engine.checkpoints()) {
  Serve("CreateTable", {default_deadline}, &AdminService::HandleCreateTable);
  Serve("DropTable", {default_deadline}, &AdminService::HandleDropTable);
  Serve("ListTables", {default_deadline}, &AdminService::HandleListTables);
  Serve("DescribeTable", {default_deadline}, &AdminService::HandleDescribeTable);
  Serve("SetLearningRate", {default_deadline}, &AdminService::HandleSetLearningRate);
  Serve("AlterTable", {default_deadline}, &AdminService::HandleAlterTable);
  Serve("EvictRows", {default_deadline}, &AdminService::HandleEvictRows);
  Serve("ListEvicted", {default_deadline}, &AdminService::HandleListEvicted);
  Serve("GetTopology", {default_deadline}, &AdminService::HandleGetTopology);
  Serve("GetStats", {default_deadline, Rights::kObserve}, &AdminService::HandleGetStats);
  Serve("Digest", {default_deadline}, &AdminService::HandleDigest);
  Serve("DescribeSession", {default_deadline}, &AdminService::HandleDescribeSession);
  Serve("SaveCheckpoint", {kLongCall, Rights::kAdmin}, &AdminService::HandleSaveCheckpoint);
  Serve("ListCheckpoints", {default_deadline, Rights::kAdmin}, &AdminService::HandleListCheckpoints);
  Serve("DescribeCheckpoint", {default_deadline, Rights::kAdmin}, &AdminService::HandleDescribeCheckpoint);
  Serve("VerifyCheckpoint", {kLongCall, Rights::kAdmin}, &AdminService::HandleVerifyCheckpoint);
  Serve("LoadCheckpoint", {kLongCall, Rights::kAdmin}, &AdminService::HandleLoadCheckpoint);
  Serve("PinCheckpoint", {default_deadline, Rights::kAdmin}, &AdminService::HandlePinCheckpoint);
  Serve("ReleaseCheckpoint", {default_deadline, Rights::kAdmin}, &AdminService::HandleReleaseCheckpoint);
  Serve("CompactCheckpoint", {kLongCall, Rights::kAdmin}, &AdminService::HandleCompactCheckpoint);
  CheckThatAllAreServed();
}

void AdminService::SetTopology(Topology topology) {
  const std::lock_guard lock(mutex_);
  topology_ = std::move(topology);
}

void AdminService::HandleCreateTable(const SmallCall<v1::CreateTableRequest, v1::CreateTableReply>& call) {
  const auto options = FromProto(call.request().options());
  const Status allowed = options.ok() ? Allow(call.caller().principal(), Rights::kAdmin, options->name.view(),
                                              Quoted(options->name.view()))
                                      : options.status();
  if (!allowed.ok()) return call.Fail(allowed);
  auto done = [call](const Result<CreatedTable>& table) {
    if (!table.ok()) return call.Fail(table.status());
    const TableOptions& made = table->options;
    if (table->created) LogDeed(Deed::kMakes, "table " + made.name.str() + " is made", call.caller());
    v1::CreateTableReply answer;
    *answer.mutable_options() = ToProto(made);
    answer.set_created(table->created);
    call.Answer(answer);
  };
  engine_.Submit(CreateTableRequest{.options = *options, .done = std::move(done), .caller = call.caller()});
}

void AdminService::HandleDropTable(const SmallCall<v1::DropTableRequest, v1::DropTableReply>& call) {
  const auto table = TableNamed(engine_, call.caller(), call.request().table(), Rights::kAdmin);
  if (!table.ok()) return call.Fail(table.status());
  auto done = [call, name = table->options.name](const Status& status) {
    if (!status.ok()) return call.Fail(status);
    LogDeed(Deed::kTakesAway, "table " + name.str() + " is dropped", call.caller());
    call.Answer({});
  };
  engine_.Submit(DropTableRequest{.table = table->id, .done = std::move(done), .caller = call.caller()});
}

void AdminService::HandleListTables(const SmallCall<v1::ListTablesRequest, v1::ListTablesReply>& call) {
  auto tables = engine_.ListTables();
  std::ranges::sort(tables, {}, [](const TableInfo& table) { return table.options.name.view(); });
  v1::ListTablesReply answer;
  const Principal* const who = call.caller().principal();
  for (const TableInfo& table : tables) {
    if (who == nullptr || who->On(table.options.name.view()) != Rights::kNone)
      *answer.add_tables() = ToProto(table.options);
  }
  call.Answer(answer);
}

void AdminService::HandleDescribeTable(
    const SmallCall<v1::DescribeTableRequest, v1::DescribeTableReply>& call) {
  const auto table = TableNamed(engine_, call.caller(), call.request().table(), Rights::kNone);
  if (!table.ok()) return call.Fail(table.status());
  const Acknowledged acknowledged = AcknowledgedIn(call.request().acknowledged());
  auto done = [this, call, options = table->options, acknowledged](const Result<TableSummary>& summary) {
    if (!summary.ok()) return call.Fail(summary.status());
    v1::DescribeTableReply answer;
    answer.set_lost_from(engine_.LostFrom(summary->generation, acknowledged));
    *answer.mutable_options() = ToProto(options);
    answer.set_steps(summary->steps);
    answer.set_lineage(summary->generation);
    answer.set_learning_rate(summary->learning_rate);
    answer.set_base_learning_rate(summary->base_learning_rate);
    for (const ShardUsage& shard : summary->shards) {
      v1::ShardInfo& info = *answer.add_shards();
      info.set_rows(shard.rows);
      info.set_cells(shard.cells);
      info.set_bytes(shard.bytes);
      answer.set_refused_keys(answer.refused_keys() + shard.refused_keys);
    }
    answer.set_candidates(summary->candidates);
    answer.set_counter_blocks(summary->counter_blocks);
    answer.set_evicted_rows(summary->evicted_rows);
    answer.set_expired_rows(summary->expired_rows);
    answer.set_new_rows(summary->new_rows);
    AddAges(*summary, answer);
    answer.mutable_rounds()->set_all_bags(summary->rounds.all_bags);
    answer.mutable_rounds()->set_owned_bags(summary->rounds.owned_bags);
    call.Answer(answer);
  };
  engine_.Submit(SummarizeRequest{.table = table->id,
                                  .with_digest = false,
                                  .done = std::move(done),
                                  .caller = call.caller(),
                                  .with_ages = call.request().ages()});
}

void AdminService::HandleSetLearningRate(
    const SmallCall<v1::SetLearningRateRequest, v1::SetLearningRateReply>& call) {
  const auto table = TableNamed(engine_, call.caller(), call.request().table(), Rights::kAdmin);
  const Status legal = table.ok() ? ValidateLearningRate(call.request().learning_rate()) : table.status();
  if (!legal.ok()) return call.Fail(legal);
  auto done = [call, name = table->options.name,
               rate = call.request().learning_rate()](const Status& status) {
    if (!status.ok()) return call.Fail(status);
    LogDeed(Deed::kSets, fmt::format("table {} learns at the rate {}", name.view(), rate), call.caller());
    call.Answer({});
  };
  engine_.Submit(SetLearningRateRequest{.table = table->id,
                                        .learning_rate = call.request().learning_rate(),
                                        .done = std::move(done),
                                        .caller = call.caller()});
}

void AdminService::HandleAlterTable(const SmallCall<v1::AlterTableRequest, v1::AlterTableReply>& call) {
  const auto table = TableNamed(engine_, call.caller(), call.request().table(), Rights::kAdmin);
  if (!table.ok()) return call.Fail(table.status());
  const auto alteration = FromProto(call.request());
  if (!alteration.ok()) return call.Fail(alteration.status());
  auto done = [call](const Result<AlteredTable>& altered) {
    if (!altered.ok()) return call.Fail(altered.status());
    if (altered->altered)
      LogDeed(Deed::kSets, "table " + altered->options.name.str() + " is altered", call.caller());
    v1::AlterTableReply answer;
    *answer.mutable_options() = ToProto(altered->options);
    answer.set_altered(altered->altered);
    call.Answer(answer);
  };
  engine_.Submit(AlterTableRequest{
      .table = table->id, .alteration = *alteration, .done = std::move(done), .caller = call.caller()});
}

void AdminService::HandleEvictRows(const SmallCall<v1::EvictRowsRequest, v1::EvictRowsReply>& call) {
  using Which = RemoveRequest::Which;
  const auto table = TableNamed(engine_, call.caller(), call.request().table(), Rights::kAdmin);
  if (!table.ok()) return call.Fail(table.status());
  RemoveRequest remove{.table = table->id, .done = {}, .caller = call.caller()};
  switch (call.request().which_case()) {
    case v1::EvictRowsRequest::kKeepRows:
      remove.which = Which::kAllBut;
      remove.number = call.request().keep_rows();
      break;
    case v1::EvictRowsRequest::kBelowScore:
      remove.which = Which::kBelow;
      remove.number = call.request().below_score();
      break;
    case v1::EvictRowsRequest::kExpired:
      if (!call.request().expired()) return call.Fail(InvalidArgument("expired is false: must be true"));
      break;
    case v1::EvictRowsRequest::WHICH_NOT_SET:
      return call.Fail(
          InvalidArgument("the request does not say which rows go: set keep_rows, below_score or expired"));
  }
  remove.done = [call, name = table->options.name](const Result<std::uint64_t>& rows) {
    if (!rows.ok()) return call.Fail(rows.status());
    LogDeed(Deed::kTakesAway, fmt::format("{} rows of table {} are evicted", *rows, name.view()),
            call.caller());
    v1::EvictRowsReply answer;
    answer.set_rows(*rows);
    call.Answer(answer);
  };
  engine_.Submit(std::move(remove));
}

void AdminService::HandleListEvicted(const SmallCall<v1::ListEvictedRequest, v1::ListEvictedReply>& call) {
  const auto table = TableNamed(engine_, call.caller(), call.request().table(), Rights::kRows);
  if (!table.ok()) return call.Fail(table.status());
  const std::uint64_t of_caller = call.request().incarnation();
  const bool of_earlier_start = of_caller != 0 && of_caller != engine_.instance();
  auto done = [call, instance = engine_.instance()](const Result<EvictedPage>& page) {
    if (!page.ok()) return call.Fail(page.status());
    v1::ListEvictedReply answer = ToProto(*page);
    answer.set_incarnation(instance);
    call.Answer(answer);
  };
  engine_.Submit(ListEvictedRequest{
      .table = table->id,
      .after_round = of_earlier_start ? ListEvictedRequest::kOfEarlierStart : call.request().after_round(),
      .keys_seen = call.request().keys_seen(),
      .through_round = call.request().through_round(),
      .done = std::move(done),
      .caller = call.caller()});
}

void AdminService::HandleGetTopology(const SmallCall<v1::GetTopologyRequest, v1::GetTopologyReply>& call) {
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
  answer.set_incarnation(engine_.instance());
  answer.set_epoch(engine_.epoch());
  answer.set_gives_reasons(true);
  call.Answer(answer);
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
  stats.instance = engine_.instance();
  stats.rounds = engine.rounds;
  stats.calls_under_way = gate_.inside();
  stats.queued_requests = engine.queued_requests;
  stats.pending_requests = engine.pending_requests;
  stats.queue_bytes = engine.queue_bytes;
  stats.max_queue_bytes = engine.max_queue_bytes;
  stats.received_bytes = data.received_bytes;
  stats.max_received_bytes = data.max_received_bytes;
  stats.shared_bytes = data.shared_bytes;
  stats.max_shared_bytes = data.max_shared_bytes;
  stats.gpu_shared_bytes = data.device_shared_buffer_bytes;
  stats.max_gpu_shared_bytes = data.max_device_shared_bytes;
  stats.data_connections = data.connections;
  stats.busy_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(engine_.BusyFor()).count());
  return stats;
}

void AdminService::HandleGetStats(const SmallCall<v1::GetStatsRequest, v1::GetStatsReply>& call) {
  RankStats stats = Stats();
  --stats.calls_under_way;  // without this one
  call.Answer(ToProto(stats));
}

void AdminService::HandleDigest(const SmallCall<v1::DigestRequest, v1::DigestReply>& call) {
  const auto table = TableNamed(engine_, call.caller(), call.request().table(), Rights::kRead);
  if (!table.ok()) return call.Fail(table.status());
  auto done = [call](const Result<TableSummary>& summary) {
    if (!summary.ok()) return call.Fail(summary.status());
    v1::DigestReply answer;
    answer.set_digest(Hex(summary->digest));
    answer.set_rows(RowsOf(*summary));
    answer.set_steps(summary->steps);
    call.Answer(answer);
  };
  engine_.Submit(SummarizeRequest{
      .table = table->id, .with_digest = true, .done = std::move(done), .caller = call.caller()});
}

void AdminService::HandleDescribeSession(
    const SmallCall<v1::DescribeSessionRequest, v1::DescribeSessionReply>& call) {
  auto done = [call, instance = engine_.instance()](const Result<SessionSummary>& summary) {
    if (!summary.ok()) return call.Fail(summary.status());
    const Principal* const who = call.caller().principal();
    v1::DescribeSessionReply answer;
    answer.set_epoch(summary->epoch);
    answer.set_may_be_forgotten(summary->may_be_forgotten);
    answer.set_incarnation(instance);
    for (const SessionSummary::Sequence& sequence : summary->sequences) {
      // A caller without a right on a table must not learn that it exists. Steps of several tables have no
      // name.
      if (who != nullptr && !sequence.name.empty() && who->On(sequence.name) == Rights::kNone) continue;
      v1::SessionTable& table = *answer.add_tables();
      table.set_table(sequence.name);
      table.set_last_step(sequence.last_step);
      answer.set_known(true);
      answer.set_last_step(std::max(answer.last_step(), sequence.last_step));
    }
    call.Answer(answer);
  };
  engine_.Submit(DescribeSessionRequest{.session = call.request().session(),
                                        .epoch = call.request().epoch(),
                                        .done = std::move(done),
                                        .caller = call.caller()});
}

}  // namespace slotwise
