#include "server/engine/stage.h"

#include <utility>

namespace slotwise {

Stage::Stage(Device& device, Collective& collective, const Exchanges& exchanges)
    : stream_(device.MakeStream()),
      gather_(device, *stream_, collective, exchanges.batches()),
      travel_(device),
      pooled_(device) {}

void Stage::AnswerLater(LookupRequest request, PooledValues values) {
  waiting_.push_back({std::move(request), std::move(values)});
}

void Stage::FinishIfDone() {
  if (!waiting_.empty() && stream_->IsDone()) Finish();
}

void Stage::Finish() {
  stream_->Wait();
  for (Waiting& waiting : std::exchange(waiting_, {})) {
    waiting.request.done(std::move(waiting.values));
  }
  kept_.clear();
}

}  // namespace slotwise
