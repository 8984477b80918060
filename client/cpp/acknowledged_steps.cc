#include "client/cpp/acknowledged_steps.h"

#include <iterator>

namespace slotwise::client {

TableState AcknowledgedSteps::Of(std::string_view table) const {
  const std::lock_guard lock(mutex_);
  const auto found = newest_.find(table);
  return found == newest_.end() ? TableState{} : found->second;
}

std::vector<std::pair<std::string, TableState>> AcknowledgedSteps::All(std::size_t most) const {
  const std::lock_guard lock(mutex_);
  const auto end = newest_.size() <= most ? newest_.end() : std::next(newest_.begin(), std::ptrdiff_t(most));
  return {newest_.begin(), end};
}

Status AcknowledgedSteps::Check(std::string_view table, const TableState& before, const TableState& met) {
  if (before.step == 0 || met.lineage == 0) return {};
  const bool same = met.lineage == before.lineage;
  if (same && met.step >= before.step) return {};
  {
    const std::lock_guard lock(mutex_);
    const auto found = newest_.find(table);
    if (found != newest_.end() && found->second.lineage == before.lineage) newest_.erase(found);
  }
  const std::string name = "table " + std::string(table);
  const std::string acknowledged =
      "this client saw its step " + std::to_string(before.step) + " acknowledged";
  if (!same) {
    return DataLoss(name + " has lost all its steps: " + acknowledged +
                    ", and the server's table was made since; it is at step " + std::to_string(met.step));
  }
  return DataLoss(name + " has lost its steps " + std::to_string(met.step + 1) + " to " +
                  std::to_string(before.step) + ": " + acknowledged + ", and the server's table is at step " +
                  std::to_string(met.step));
}

void AcknowledgedSteps::Acknowledge(std::string_view table, const TableState& state) {
  if (state.lineage == 0) return;
  const std::lock_guard lock(mutex_);
  const auto [found, is_new] = newest_.try_emplace(std::string(table), state);
  TableState& newest = found->second;
  if (!is_new && (newest.lineage != state.lineage || newest.step < state.step)) newest = state;
}

void AcknowledgedSteps::Forget(std::string_view table) {
  const std::lock_guard lock(mutex_);
  if (const auto found = newest_.find(table); found != newest_.end()) newest_.erase(found);
}

void AcknowledgedSteps::ForgetAll() {
  const std::lock_guard lock(mutex_);
  newest_.clear();
}

}  // namespace slotwise::client
