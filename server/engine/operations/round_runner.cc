#include "server/engine/operations/round_runner.h"

#include <cstdint>

namespace slotwise {

void RoundRunner::Run(const Round& round, const CarriedBatches& carried) {
  const OperationTraits& operation = operations_.Of(round.operation);
  Stages& stages = context_.stages;
  operation.overlaps ? stages.FinishDone() : stages.FinishAll();
  context_.round = round.number;
  context_.carried = carried;
  UseScratch(round);
  operation.run(context_, round);
  CountRound(round);
  if (!stages.overlap()) stages.FinishAll();
}

void RoundRunner::UseScratch(const Round& round) {
  scratch_.clear();
  round.ForEachTable([&](const Round& share) {
    const Table* const table = context_.tables.Get(share.table);
    if (table == nullptr) return;  // the round is of none
    const TableOptions& options = table->info.options;
    std::uint64_t bytes = 0;
    for (const RoundPart& part : share.parts) {
      bytes += share.is_step() ? StepBytes(part.samples, part.keys, options.slots, options.dim, part.weighted)
                               : part.bytes;
    }
    if (bytes > 0) scratch_.push_back({share.table, bytes});
  });
  context_.tables.scratch().Use(scratch_);
}

void RoundRunner::CountRound(const Round& round) {
  round.ForEachTable([&](const Round& share) {
    const Table* const table = context_.tables.Get(share.table);
    if (table == nullptr) return;  // the round was of none, or dropped it
    BatchCounts mine;
    for (const RoundPart& part : share.parts) {
      if (!context_.IsMine(part.ticket)) continue;
      mine.samples += part.samples;
      mine.keys += part.keys;
    }
    if (round.operation_class == OperationClass::kLookup) table->counters->CountLookups(mine);
    if (round.is_step()) table->counters->CountPushes(mine);
    table->counters->Note(table->state());
  });
}

}  // namespace slotwise
