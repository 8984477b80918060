// Push: gather every part of a step, with its gradients; each rank updates the rows it owns, once.
#include "server/engine/operations.h"

namespace slotwise {

void Operations::Push(const Round& round, Table& table) {
  const TableOptions& options = table.info.options;
  const BatchLayout layout(round, options.slots, collective_.size());
  Stage& stage = NextStage();
  const BatchView batch = stage.gather().Gather(round, layout, [&](TicketNumber ticket) -> const BatchPart& {
    return Held<PushRequest>(ticket).batch;
  });
  const Status prepared = PrepareAndInsert(table, batch);
  if (prepared.ok()) {
    OptimizerOptions optimizer = options.optimizer;
    optimizer.learning_rate = table.learning_rate;
    Update(stage, round, layout, table, ScalarsOfStep(optimizer, table.steps + 1));
    ++table.steps;
    agenda_.StepApplied(round, table.steps);
  }
  stage.Close(device_.WorkStream());
  AnswerMine<PushRequest>(
      round,
      [&](PushRequest& request) {
        request.done(prepared.ok() ? Result<std::uint64_t>(table.steps) : Result<std::uint64_t>(prepared));
      },
      &stage);
}

// Gradients are summed in part order, which bags that travel alone keep only if the parts came in it.
void Operations::Update(Stage& stage, const Round& round, const BatchLayout& layout, Table& table,
                        const StepScalars& scalars) {
  const std::uint32_t dim = table.info.options.dim;
  const auto gradients_of = [&](TicketNumber ticket) { return Held<PushRequest>(ticket).gradients.span(); };
  const TravellingBags bags{layout.bags_of, layout.size.keys, dim};
  const bool alone =
      collective_.size() > 1 && layout.in_part_order && travel_.Choose(bags) == Way::kOwnedBags;
  if (alone) {
    travel_.Update(*table.shard, bags, stage.gather().MyBagValues(round, layout, dim, gradients_of), scalars,
                   stage.travel());
  } else {
    table.shard->Update(stage.gather().GatherBagValues(round, layout, dim, gradients_of), scalars);
  }
  if (collective_.size() > 1) ++(alone ? table.rounds.owned_bags : table.rounds.all_bags);
}

}  // namespace slotwise
