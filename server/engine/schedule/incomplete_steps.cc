#include "server/engine/schedule/incomplete_steps.h"

namespace slotwise {

IncompleteStep* IncompleteSteps::Find(const StepKey& key) {
  const auto found = steps_.find(key);
  return found == steps_.end() ? nullptr : &found->second;
}

IncompleteStep& IncompleteSteps::Add(const StepKey& key, std::uint32_t parts, std::uint64_t deadline_ms,
                                     std::uint32_t tables) {
  IncompleteStep& step = steps_[key];
  step.tables = tables;
  step.parts = parts;
  step.deadline_ms = deadline_ms;
  step.arrival = next_arrival_++;
  by_arrival_.emplace(step.arrival, key);
  awaited_.emplace(step.arrival, key);
  return step;
}

IncompleteStep::Share* IncompleteSteps::ShareOf(const StepKey& key, IncompleteStep& step, std::uint32_t place,
                                                TableId table) {
  if (step.places.try_emplace(table, place).first->second != place) return nullptr;
  const auto [share, is_new] = step.shares.try_emplace(place);
  if (is_new) {
    share->second.table = table;
    if (step.tables > 1) several_[table].insert(key);
  } else if (share->second.table != table) {
    step.places.erase(table);
    return nullptr;
  }
  return &share->second;
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

// The key is a copy, because the caller's key may lie in the index from which it is removed here.
IncompleteStep IncompleteSteps::Take(StepKey key) {
  IncompleteStep step = std::move(steps_.extract(key).mapped());
  by_arrival_.erase(step.arrival);
  awaited_.erase(step.arrival);
  if (step.tables == 1) return step;
  for (const auto& [table, place] : step.places) {
    std::set<StepKey>& of_table = several_.at(table);
    of_table.erase(key);
    if (of_table.empty()) several_.erase(table);
  }
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
  for (auto several = several_.find(table); several != several_.end(); several = several_.find(table)) {
    all.push_back(Take(*several->second.begin()));
  }
  return all;
}

void IncompleteSteps::AddTo(Fingerprint& fingerprint) const {
  fingerprint.Add(steps_.size());
  for (const auto& [key, step] : steps_) {
    fingerprint.Add(key.table, key.session, key.number, step.parts, step.deadline_ms, step.arrival,
                    step.bytes, step.too_large, step.epoch, step.tables, step.came);
    for (const auto& [place, share] : step.shares) {
      fingerprint.Add(place, share.table, share.learning_rate.has_value());
      for (const RoundPart& part : share.have) {
        fingerprint.Add(part.ticket.rank, part.ticket.number, part.part, part.body);
      }
      for (const Ticket& waiter : share.waiters) fingerprint.Add(waiter.rank, waiter.number);
    }
  }
}

}  // namespace slotwise
