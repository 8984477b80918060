#include "server/engine/stage.h"

#include <utility>

namespace slotwise {

Stage::Stage(Device& device, Collective& collective, const Exchanges& exchanges)
    : lane_(device.MakeLane()),
      gather_(device, *lane_, collective, exchanges.batches()),
      travel_(device),
      pooled_(device) {}

void Stage::AnswerLater(LookupRequest request, PooledValues values) {
  waiting_.push_back({std::move(request), std::move(values)});
}

void Stage::FinishIfDone() {
  if (!waiting_.empty() && lane_->IsDone()) Finish();
}

void Stage::Finish() {
  lane_->Wait();
  for (Waiting& waiting : std::exchange(waiting_, {})) {
    waiting.request.done(std::move(waiting.values));
  }
  kept_.clear();
}

}  // namespace slotwise
