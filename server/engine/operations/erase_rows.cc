#include "server/engine/operations/erase_rows.h"

#include <optional>
#include <utility>

#include "server/engine/operations/recorded_checks.h"
#include "server/engine/operations/replay_context.h"
#include "server/engine/operations/round_context.h"

namespace slotwise::operations {

void EraseRows::Run(RoundContext& context, const Round& round) {
  const std::array batches{context.KeysOf(round)};
  Table& table = batches[0].table;
  Stage& stage = context.stages.Next();
  const BatchView keys = stage.gather().Gather(batches, context.carried).front().batch;
  Result<ErasableBatch> batch = table.shard->PrepareErase(keys);
  // Forgets, too, how often the keys came.
  Table* const candidates = context.tables.CountsByKeyOf(table);
  std::optional<ErasableBatch> counts;
  Status mine = batch.status();
  if (candidates != nullptr && mine.ok()) {
    Result<ErasableBatch> counted = candidates->shard->PrepareErase(keys);
    mine = counted.status();
    if (counted.ok()) counts.emplace(std::move(*counted));
  }
  const Status prepared = context.work.Agree(mine.ok() ? context.MakeRoomForBatches(round) : mine);

  std::array<std::uint64_t, 1> erased{0};
  if (prepared.ok()) {
    if (counts) {
      context.checkpointing.BeforeChange(*candidates->shard, *counts);
      std::move(*counts).Erase();
    }
    context.checkpointing.BeforeChange(*table.shard, *batch);
    erased[0] = std::move(*batch).Erase(ErasedFrom(context.round_outcome, table.info.id));
    context.collective.AllReduceSum(erased);
    context.RecordBatchRound(kRecords.front(), round, {&table.steps, 1}, stage);
  }
  stage.Close(context.device.WorkStream());
  prepared.ok() ? context.AnswerMineOnceRecorded<Request>(round, erased[0], &stage)
                : context.AnswerMineWith<Request>(round, prepared, &stage);
}

Result<EraseRows::Record> EraseRows::Read(RecordKind /*kind*/, Rank rank, std::span<const std::byte> body) {
  return ReadBatches(rank, body);
}

Status EraseRows::Replay(ReplayContext& context, std::span<const Record> of_ranks) {
  if (Status alike = CheckRowsByKey(of_ranks); !alike.ok()) return alike;
  const TableId id = of_ranks.front().shares.front().table;
  if (Status there = CheckThereIs(context.tables, id); !there.ok()) return there;
  const auto batch = context.gather.Gather(of_ranks, 0, nullptr, {});
  if (!batch.ok()) return batch.status();
  const Table& table = *context.tables.Get(id);
  if (const Table* const candidates = context.tables.CountsByKeyOf(table); candidates != nullptr) {
    if (Status erased = EraseKeys(*candidates->shard, batch->view); !erased.ok()) return erased;
  }
  return EraseKeys(*table.shard, batch->view, ErasedFrom(context.round_outcome, id));
}

}  // namespace slotwise::operations
