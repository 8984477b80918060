#include "server/engine/stage.h"

#include <algorithm>
#include <utility>

namespace slotwise {

Stage::Stage(Device& device, Collective& collective, const Exchanges& exchanges, PendingRequests& tickets)
    : device_(device),
      stream_(device.MakeStream()),
      gather_(device, *stream_, collective, exchanges.batches(), tickets),
      pooled_(device),
      narrow_(device) {}

DistributionArrays& Stage::distribution_arrays(std::size_t table) {
  while (distribution_arrays_.size() <= table)
    distribution_arrays_.push_back(std::make_unique<DistributionArrays>(device_));
  return *distribution_arrays_[table];
}

void Stage::LetGoOfLargeArrays() {
  std::size_t bytes = 0;
  for (std::size_t table = 1; table < distribution_arrays_.size(); ++table)
    bytes += distribution_arrays_[table]->bytes();
  if (bytes > (device_.SharesHostMemory() ? kMostKeptOnCpu : kMostKept)) distribution_arrays_.resize(1);
}

void Stage::FinishIfDone() {
  if (!idle() && stream_->IsDone()) Finish();
}

void Stage::Finish() {
  stream_->Wait();
  LetGoOfLargeArrays();
  kept_.clear();  // before the answers: an answered caller finds the request's room free
  kept_memory_.clear();
  // The caller owns the answer from then on, so that its memory ends when the caller lets it go.
  for (std::function<void()>& answer : std::exchange(answers_, {})) std::exchange(answer, nullptr)();
}

Stages::Stages(Device& device, Collective& collective, const Exchanges& exchanges, PendingRequests& tickets) {
  // A CPU does its work within each call, so a second stage would gain nothing.
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

bool Stages::idle() const {
  return std::ranges::all_of(stages_, [](const auto& stage) { return stage->idle(); });
}

void Stages::FinishAll() {
  for (std::size_t i = 1; i <= stages_.size(); ++i) After(i).Finish();
}

}  // namespace slotwise
