// Push: gather every part of a step, with its gradients; each rank updates the rows it owns, once.
#include "server/engine/operations.h"

namespace slotwise {

void Operations::Push(const Round& round, Table& table) {
  const TableOptions& options = table.info.options;
  const BatchLayout layout(round, options.slots, collective_.size());
  const BatchGather::Step step = gather_.GatherStep(
      round, layout, options.dim,
      [&](TicketNumber ticket) -> const BatchPart& { return Held<PushRequest>(ticket).batch; },
      [&](TicketNumber ticket) { return Held<PushRequest>(ticket).gradients.span(); });

  const Status prepared = PrepareAndInsert(table, step.batch);
  if (prepared.ok()) {
    OptimizerOptions optimizer = options.optimizer;
    optimizer.learning_rate = table.learning_rate;
    table.shard->Update(step.gradients, ScalarsOfStep(optimizer, table.steps + 1));
    ++table.steps;
    agenda_.StepApplied(round, table.steps);
  }
  AnswerMine<PushRequest>(round, [&](PushRequest& request) {
    request.done(prepared.ok() ? Result<std::uint64_t>(table.steps) : Result<std::uint64_t>(prepared));
  });
}

}  // namespace slotwise
