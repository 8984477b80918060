// Push: gather every part of a step, with its gradients; each rank updates the rows it owns, once. A step of
// several tables is prepared on all of them before anything changes on one.
#include <vector>

#include "server/engine/operations.h"

namespace slotwise {

void Operations::Push(const Round& round) {
  struct Share {
    const Round& round;
    Table& table;
    BatchLayout layout;
  };
  std::vector<Share> shares;
  round.ForEachTable([&](const Round& share) {
    Table& table = *tables_.Get(share.table);
    shares.push_back({share, table, BatchLayout(share, table.info.options.slots, collective_.size())});
  });
  Stage& stage = stages_.Next();
  std::vector<TableWork::Share> batches;
  for (const Share& share : shares) {
    batches.push_back({&share.table, stage.gather(batches.size()).Gather(share.round, share.layout)});
  }
  const Status prepared = work_.PreparePushAndInsert(batches, RoomToRecord(round));
  if (prepared.ok()) {
    stages_.FinishDone();  // the ranks have waited for each other, and for their devices
    std::vector<Ledger::TableStep> steps;
    std::vector<std::uint32_t> bodies;
    for (const Share& share : shares) {
      const std::size_t place = steps.size();
      Update(share.round, share.layout, share.table, stage.gather(place), stage.travel_arrays());
      steps.push_back({share.table.info.id, ++share.table.steps});
      bodies.insert(bodies.end(), share.round.bodies.begin(), share.round.bodies.end());
    }
    std::vector<std::uint64_t> counts;
    for (const Ledger::TableStep& step : steps) counts.push_back(step.step);
    RecordBatchRound(RecordKind::kPush, round, counts, stage);
    tables_.Record({KeyOf(round.table, round.step).table, round.step.session}, round.step, steps, bodies);
  }
  stage.Close(device_.WorkStream());
  // The answer need not wait for the device: whatever any rank reads of the tables later is ordered behind
  // the updates, and a device that fails ends the server.
  for (const Share& share : shares) {
    if (prepared.ok()) {
      AnswerMineOnceRecorded<PushRequest>(
          share.round, AppliedStep{share.table.steps, share.table.version()}, &stage);
    } else {
      AnswerMine<PushRequest>(share.round, [&](PushRequest& request) { request.done(prepared); }, &stage);
    }
  }
}

void Operations::Update(const Round& round, const BatchLayout& layout, Table& table, BatchGather& gather,
                        TravelArrays& arrays) {
  checkpointing_.BeforeChange(*table.shard);
  const std::uint32_t dim = table.info.options.dim;
  const TableWork::Gradients gradients{.all = [&] { return gather.GatherBagValues(round, layout, dim); },
                                       .mine = [&] { return gather.MyBagValues(round, layout, dim); },
                                       .in_part_order = layout.in_part_order};
  work_.Update(table, {layout.bags_of, layout.size.keys, dim}, gradients,
               ScalarsOfStep(table.optimizer(), table.steps + 1), arrays);
}

}  // namespace slotwise
