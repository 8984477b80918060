// SaveCheckpoint and ReportCheckpoint: run the rounds that make checkpoints (checkpointing.h).
// Thread-safety: as RoundContext.
#ifndef SLOTWISE_SERVER_ENGINE_OPERATIONS_SAVE_CHECKPOINT_H_
#define SLOTWISE_SERVER_ENGINE_OPERATIONS_SAVE_CHECKPOINT_H_

#include <optional>
#include <utility>

#include "server/engine/operations/checkpoint_requests.h"
#include "server/engine/operations/definition.h"

namespace slotwise {

namespace operations {

struct SaveCheckpoint {
  using Request = SaveCheckpointRequest;

  static void Run(RoundContext& context, const Round& round) {
    std::optional<Request> mine;
    context.AnswerMine<Request>(round, [&](Request& request) { mine = std::move(request); });
    Checkpointing& checkpointing = context.checkpointing;
    if (checkpointing.busy()) {
      if (mine) checkpointing.Await(std::move(*mine));
      return;
    }
    const auto asked = round.payload.As<Request::Asked>();
    checkpointing.Save(round.number, asked.delta, asked.value_type, mine ? std::move(mine->done) : nullptr);
  }
};

struct ReportCheckpoint {
  using Request = CheckpointEventRequest;

  static void Run(RoundContext& context, const Round& round) {
    context.AnswerMineWith<Request>(round, Status());
    const auto said = round.payload.As<Request::Said>();
    context.checkpointing.OnEvent(said.event, said.failed);
  }
};

}  // namespace operations

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_OPERATIONS_SAVE_CHECKPOINT_H_
