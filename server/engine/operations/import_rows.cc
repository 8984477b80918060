#include "server/engine/operations/import_rows.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/engine/operations/recorded_checks.h"
#include "server/engine/operations/replay_context.h"
#include "server/engine/operations/round_context.h"

namespace slotwise::operations {
namespace {

// Prepares to erase the keys from the candidates' table, if there is one. Collective.
Status PrepareToForget(RoundContext& context, Table* candidates, const BatchView& keys,
                       std::optional<ErasableBatch>& prepared) {
  if (candidates == nullptr) return {};
  Result<ErasableBatch> batch = candidates->shard->PrepareErase(keys);
  if (batch.ok()) prepared.emplace(std::move(*batch));
  return context.work.Agree(batch.status());
}

}  // namespace

void ImportRows::Run(RoundContext& context, const Round& round) {
  const auto asked = round.payload.As<Request::Asked>();
  const std::array batches{context.KeysOf(round)};
  Table& table = batches[0].table;
  const TableOptions& options = table.info.options;
  const std::uint32_t columns = asked.with_state != 0 ? RecordFloats(options) : options.dim;
  if (asked.columns != 0 && asked.columns != columns) {
    return context.AnswerMineWith<Request>(
        round, FailedPrecondition("table " + options.name.str() + " was altered, and its rows " +
                                  (options.has_scores() ? "have scores now" : "have no scores any more") +
                                  ": import them again")
                   .Because(Reason::kTableChanged));
  }
  const std::uint64_t steps = std::max(table.steps, asked.table_steps);
  Stage& stage = context.stages.Next();
  const std::vector<TableWork::Share> gathered = stage.gather().Gather(batches, context.carried);
  // The keys get rows, so that their counts end.
  Table* const candidates = context.tables.CountsByKeyOf(table);
  std::optional<ErasableBatch> counts;
  const Status counts_end = PrepareToForget(context, candidates, gathered.front().batch, counts);
  auto inserted =
      counts_end.ok()
          ? context.work.PrepareAndInsert(
                gathered, PrepareFor::kInsert,
                [&](std::uint64_t, std::uint64_t bytes) { return context.MakeRoomForBatches(round, bytes); },
                steps)
          : Result<std::span<InsertedBatch>>(counts_end);
  if (inserted.ok()) {
    if (counts) {
      context.checkpointing.BeforeChange(*candidates->shard, *counts);
      std::move(*counts).Erase();
    }
    InsertedBatch& batch = inserted->front();
    context.checkpointing.BeforeChange(*table.shard, batch);
    const std::array<ValueShare, 1> share{{{.of = batches[0], .columns = columns}}};
    const float* const values = stage.gather().GatherBagValues(share).front();
    stage.gather().OrderWorkAfterValues();
    Apply(table, std::move(batch), values, columns, steps);
    const std::span<const Eviction> evictions = context.work.evictions();
    context.RecordBatchRound(evictions.empty() ? kPlain : kWithEvictions, round, {&table.steps, 1}, stage,
                             {.with_state = asked.with_state != 0, .evictions = evictions});
  }
  stage.Close(context.device.WorkStream());
  inserted.ok() ? context.AnswerMineOnceRecorded<Request>(round, Status(), &stage)
                : context.AnswerMineWith<Request>(round, inserted.status(), &stage);
}

void ImportRows::Apply(Table& table, InsertedBatch batch, const float* values, std::uint32_t columns,
                       std::uint64_t steps) {
  std::move(batch).Assign(values, columns);
  table.steps = steps;
}

Result<ImportRows::Record> ImportRows::Read(RecordKind kind, Rank rank, std::span<const std::byte> body) {
  return ReadBatches(rank, body, false, kind == kWithEvictions);
}

Status ImportRows::Replay(ReplayContext& context, std::span<const Record> of_ranks) {
  if (Status alike = CheckRowsByKey(of_ranks); !alike.ok()) return alike;
  const RecordedShare& share = of_ranks.front().shares.front();
  if (Status there = CheckThereIs(context.tables, share.table); !there.ok()) return there;
  Table& table = *context.tables.Get(share.table);
  const TableOptions& options = table.info.options;
  if (share.steps < table.steps)
    return DoesNotFollow("an import sets a count of " + std::to_string(table.steps) + " steps to " +
                         std::to_string(share.steps));
  const bool whole = of_ranks.front().with_state;
  const RecordColumns columns = whole ? ColumnsOf(options) : RecordColumns::OfValues(options.dim);
  if (Status evicted = ReplayEvictionsOf(context, of_ranks); !evicted.ok()) return evicted;
  const auto batch = context.gather.Gather(of_ranks, 0, nullptr, columns);
  if (!batch.ok()) return batch.status();
  if (const Table* const candidates = context.tables.CountsByKeyOf(table); candidates != nullptr) {
    if (Status forgotten = EraseKeys(*candidates->shard, batch->view); !forgotten.ok()) return forgotten;
  }
  Result<InsertedBatch> inserted = table.shard->PrepareInsert(batch->view).Insert(share.steps + 1);
  if (!inserted.ok()) return inserted.status();
  Apply(table, std::move(*inserted), batch->values, columns.all, share.steps);
  return {};
}

}  // namespace slotwise::operations
