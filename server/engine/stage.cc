#include "server/engine/stage.h"

#include <utility>

namespace slotwise {

Stage::Stage(Device& device, Collective& collective, const Exchanges& exchanges, TicketBook& tickets)
    : device_(device),
      collective_(collective),
      exchanges_(exchanges),
      tickets_(tickets),
      stream_(device.MakeStream()),
      travel_(device),
      pooled_(device),
      narrow_(device) {}

BatchGather& Stage::gather(std::size_t table) {
  while (gathers_.size() <= table) {
    gathers_.push_back(
        std::make_unique<BatchGather>(device_, *stream_, collective_, exchanges_.batches(), tickets_));
  }
  return *gathers_[table];
}

void Stage::LetGoOfLargeBatches() {
  std::size_t bytes = 0;
  for (std::size_t table = 1; table < gathers_.size(); ++table) bytes += gathers_[table]->bytes();
  if (bytes > kMostKept) gathers_.resize(1);
}

void Stage::FinishIfDone() {
  if ((!answers_.empty() || !kept_.empty()) && stream_->IsDone()) Finish();
}

void Stage::Finish() {
  stream_->Wait();
  LetGoOfLargeBatches();
  kept_.clear();  // whoever hears an answer finds the room that the request had
  kept_memory_.clear();
  // Whoever asked owns the answer from then on, so that its memory ends when they let it go.
  for (std::function<void()>& answer : std::exchange(answers_, {})) std::exchange(answer, nullptr)();
}

Stages::Stages(Device& device, Collective& collective, const Exchanges& exchanges, TicketBook& tickets) {
  // A device whose work is done when it was asked for has nothing to do beside it.
  const std::size_t stages = device.SharesHostMemory() ? 1 : kStages;
  while (stages_.size() < stages)
    stages_.push_back(std::make_unique<Stage>(device, collective, exchanges, tickets));
}

Stage& Stages::Next() {
  FinishOldest();
  turn_ = (turn_ + 1) % stages_.size();
  return *stages_[turn_];
}

void Stages::FinishDone() {
  for (std::size_t i = 1; i <= stages_.size(); ++i) After(i).FinishIfDone();
}

void Stages::FinishAll() {
  for (std::size_t i = 1; i <= stages_.size(); ++i) After(i).Finish();
}

}  // namespace slotwise
