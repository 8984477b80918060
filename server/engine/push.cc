// Push: gather every part of a step, with its gradients; each rank updates the rows it owns, once.
#include "server/engine/operations.h"

namespace slotwise {

void Operations::Push(const Round& round, Table& table) {
  const TableOptions& options = table.info.options;
  const BatchLayout layout(round, options.slots, collective_.size());
  Stage& stage = stages_.Next();
  const BatchView batch = stage.gather().Gather(round, layout);
  const Status prepared = work_.PreparePushAndInsert(table, batch);
  if (prepared.ok()) {
    stages_.FinishDone();  // the ranks have waited for each other, and for their devices
    const TableWork::Gradients gradients{
        .all = [&] { return stage.gather().GatherBagValues(round, layout, options.dim); },
        .mine = [&] { return stage.gather().MyBagValues(round, layout, options.dim); },
        .in_part_order = layout.in_part_order};
    work_.Update(table, {layout.bags_of, layout.size.keys, options.dim}, gradients,
                 ScalarsOfStep(table.optimizer(), table.steps + 1), stage.travel_arrays());
    ++table.steps;
    tables_.Record({round.table, round.step.session}, round.step, table.steps, round.bodies);
  }
  stage.Close(device_.WorkStream());
  // The answer need not wait for the device: whatever any rank reads of the table later is ordered behind the
  // update, and a device that fails ends the server.
  AnswerMine<PushRequest>(
      round,
      [&](PushRequest& request) {
        if (!prepared.ok()) return request.done(prepared);
        request.done(AppliedStep{table.steps, table.version()});
      },
      &stage);
}

}  // namespace slotwise
