#include "server/engine/incomplete_steps.h"

namespace slotwise {

IncompleteStep* IncompleteSteps::Find(const StepKey& key) {
  const auto found = steps_.find(key);
  return found == steps_.end() ? nullptr : &found->second;
}

IncompleteStep& IncompleteSteps::Add(const StepKey& key, std::uint32_t parts, std::uint64_t deadline_ms) {
  IncompleteStep& step = steps_[key];
  step.parts = parts;
  step.deadline_ms = deadline_ms;
  step.arrival = next_arrival_++;
  by_arrival_.emplace(step.arrival, key);
  awaited_.emplace(step.arrival, key);
  return step;
}

void IncompleteSteps::MarkTooLarge(const StepKey& key) {
  IncompleteStep& step = steps_.at(key);
  step.too_large = true;
  awaited_.erase(step.arrival);
}

std::optional<StepKey> IncompleteSteps::First() const {
  return awaited_.empty() ? std::nullopt : std::optional(awaited_.begin()->second);
}

std::uint64_t IncompleteSteps::FirstDeadline() const {
  return steps_.at(by_arrival_.begin()->second).deadline_ms;
}

IncompleteStep IncompleteSteps::Take(const StepKey& key) {
  IncompleteStep step = std::move(steps_.extract(key).mapped());
  by_arrival_.erase(step.arrival);
  awaited_.erase(step.arrival);
  return step;
}

std::vector<IncompleteStep> IncompleteSteps::TakeDue(std::uint64_t now_ms) {
  std::vector<IncompleteStep> due;
  while (!by_arrival_.empty() && steps_.at(by_arrival_.begin()->second).deadline_ms <= now_ms) {
    due.push_back(Take(by_arrival_.begin()->second));
  }
  return due;
}

std::vector<IncompleteStep> IncompleteSteps::TakeAll() {
  std::vector<IncompleteStep> all;
  while (!by_arrival_.empty()) all.push_back(Take(by_arrival_.begin()->second));
  return all;
}

std::vector<IncompleteStep> IncompleteSteps::TakeAllOf(TableId table) {
  std::vector<IncompleteStep> all;
  for (auto step = steps_.lower_bound({table, 0, 0}); step != steps_.end() && step->first.table == table;
       step = steps_.lower_bound({table, 0, 0})) {
    all.push_back(Take(step->first));
  }
  return all;
}

void IncompleteSteps::AddTo(Fingerprint& fingerprint) const {
  fingerprint.Add(steps_.size());
  for (const auto& [key, step] : steps_) {
    fingerprint.Add(key.table, key.session, key.number, step.parts, step.deadline_ms, step.arrival,
                    step.bytes, step.too_large, step.epoch);
    for (const RoundPart& part : step.have) {
      fingerprint.Add(part.ticket.rank, part.ticket.number, part.part, part.body);
    }
    for (const Ticket& waiter : step.waiters) fingerprint.Add(waiter.rank, waiter.number);
  }
}

}  // namespace slotwise
