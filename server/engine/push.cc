// Push: gather every part of a step, with its gradients; each rank updates the rows it owns, once. A step of
// several tables is prepared on all of them before anything changes on one.
#include <vector>

#include "server/engine/operations.h"

namespace slotwise {

void Operations::Push(const Round& round) {
  std::vector<TableBatch> batches;
  round.ForEachTable([&](const Round& share) { batches.push_back(TableBatchOf(share)); });
  Stage& stage = stages_.Next();
  const Status prepared =
      work_.PrepareAndInsert(Gather(stage, batches), PrepareFor::kPush, RoomToRecord(round));
  if (prepared.ok()) {
    stages_.FinishDone();  // the ranks have waited for each other, and for their devices
    Update(stage, batches);
    std::vector<Ledger::TableStep> steps;
    std::vector<std::uint32_t> bodies;
    for (const TableBatch& batch : batches) {
      CountParts(batch);
      steps.push_back({batch.table.info.id, ++batch.table.steps});
      bodies.insert(bodies.end(), batch.round.bodies.begin(), batch.round.bodies.end());
    }
    std::vector<std::uint64_t> counts;
    for (const Ledger::TableStep& step : steps) counts.push_back(step.step);
    RecordBatchRound(KindOfPush(round), round, counts, stage);
    tables_.Record({KeyOf(round.table, round.step).table, round.step.session}, round.step, steps, bodies);
  }
  stage.Close(device_.WorkStream());
  if (!prepared.ok()) return RefuseStep(batches, prepared, stage);
  // The answer need not wait for the device: whatever any rank reads of the tables later is ordered behind
  // the updates, and a device that fails ends the server.
  for (const TableBatch& batch : batches) {
    AnswerMineOnceRecorded<PushRequest>(batch.round, AppliedStep{batch.table.steps, batch.table.version()},
                                        &stage);
  }
}

void Operations::RefuseStep(std::span<const TableBatch> batches, const Status& why, Stage& stage) {
  for (const bool of_another : {false, true}) {
    for (const TableBatch& batch : batches) {
      if ((batches.size() > 1 && work_.refused() != &batch.table) != of_another) continue;
      AnswerMine<PushRequest>(
          batch.round,
          [&](PushRequest& request) {
            of_another&& request.refused_with_others ? request.refused_with_others(why) : request.done(why);
          },
          &stage);
    }
  }
}

void Operations::CountParts(const TableBatch& batch) {
  const Table& table = batch.table;
  for (const RoundPart& part : batch.round.parts) {
    if (!IsMine(part.ticket) || part.samples == 0) continue;
    const PushRequest& push = tickets_.Get<PushRequest>(part.ticket.number);
    // A client may say what it likes: a state that the table has not been in counts as nothing.
    const bool known = push.looked_up.lineage != 0 && push.looked_up.lineage == table.lineage;
    if (known && push.looked_up.step <= table.steps) {
      table.counters->CountStaleness(table.steps - push.looked_up.step);
    }
    table.counters->CountGradients(push.gradients);
  }
}

void Operations::Update(Stage& stage, std::span<const TableBatch> batches) {
  for (const TableBatch& batch : batches) checkpointing_.BeforeChange(*batch.table.shard);
  std::vector<ValueShare> shares;
  for (const TableBatch& batch : batches) {
    shares.push_back({.of = batch.share(),
                      .columns = batch.table.info.options.dim,
                      .mine_alone = work_.TakesMineAlone(batch.bags(), batch.layout.in_part_order)});
  }
  // What an update does before it needs gradients goes on while they come.
  const auto for_grouped = [&](auto f) {
    for (std::size_t t = 0; t < batches.size(); ++t) {
      if (!shares[t].mine_alone) f(*batches[t].table.shard);
    }
  };
  for_grouped([](Shard& shard) { shard.GroupRows(); });
  const std::vector<const float*> gradients = stage.gather().GatherBagValues(shares);
  for_grouped([](Shard& shard) { shard.PlanSums(); });
  stage.gather().OrderWorkAfterValues();
  for (std::size_t t = 0; t < batches.size(); ++t) {
    Table& table = batches[t].table;
    work_.Update(table, batches[t].bags(), {gradients[t], shares[t].mine_alone},
                 ScalarsOfStep(table.optimizer(batches[t].round.learning_rate), table.steps + 1),
                 stage.travel_arrays());
  }
}

}  // namespace slotwise
