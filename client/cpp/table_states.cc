#include "client/cpp/table_states.h"

#include <algorithm>
#include <iterator>

namespace slotwise::client {
namespace {

// Returns what happened to a table that has another generation. Its count of steps says nothing about the
// former table's.
std::string WhyOfAnotherGeneration(const TableState& before, const TableState& met) {
  const bool same_start = before.instance != 0 && before.instance == met.instance;
  std::string text =
      same_start
          ? " was dropped and made anew, or a checkpoint's was put in its place"
          : " was made anew: it was dropped, a checkpoint's was put in its place, or the server started "
            "without it";
  text += "; of the former table this client saw step " + std::to_string(before.step) +
          " acknowledged, and the new one is at step " + std::to_string(met.step);
  if (met.step > 0)
    text += ", a count that pushes since have made, or that came with an import or a checkpoint";
  return text;
}

}  // namespace

TableState TableStates::Of(std::string_view table, const States& states) const {
  const std::lock_guard lock(mutex_);
  const auto found = states.find(table);
  return found == states.end() ? TableState{} : found->second;
}

std::vector<std::pair<std::string, TableState>> TableStates::AllAcknowledged(std::size_t most) const {
  const std::lock_guard lock(mutex_);
  const std::size_t count = std::min(most, acknowledged_.size());
  return {acknowledged_.begin(), std::next(acknowledged_.begin(), static_cast<std::ptrdiff_t>(count))};
}

Status TableStates::NoteLoss(std::string_view table, const TableState& before, const TableState& met) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = acknowledged_.find(table);
    // Steps that a newer start has acknowledged since are not lost.
    if (found != acknowledged_.end() && found->second.generation == before.generation &&
        found->second.instance == before.instance) {
      acknowledged_.erase(found);
    }
  }
  const std::string name = "table " + std::string(table);
  if (met.generation != before.generation)
    return DataLoss(name + WhyOfAnotherGeneration(before, met)).Because(Reason::kStepsLost);
  std::string text = name + " has lost its steps " + std::to_string(met.kept() + 1) + " to " +
                     std::to_string(before.step) + ": this client saw its step " +
                     std::to_string(before.step) + " acknowledged, and the server's table ";
  if (met.kept() < met.step) text += "went on from step " + std::to_string(met.kept()) + ", and ";
  return DataLoss(text + "is at step " + std::to_string(met.step)).Because(Reason::kStepsLost);
}

void TableStates::Acknowledge(std::string_view table, const TableState& state) {
  if (state.generation == 0) return;
  const std::lock_guard lock(mutex_);
  const auto [found, is_new] = acknowledged_.try_emplace(std::string(table), state);
  TableState& newest = found->second;
  if (!is_new && (newest.generation != state.generation || newest.step < state.step)) newest = state;
}

void TableStates::NoteLookup(std::string_view table, const TableState& state) {
  if (state.generation == 0) return;
  const std::lock_guard lock(mutex_);
  const auto found = looked_up_.find(table);
  if (found != looked_up_.end()) {
    found->second = state;
  } else {
    looked_up_.emplace(table, state);
  }
}

void TableStates::Forget(std::string_view table) {
  const std::lock_guard lock(mutex_);
  for (States* states : {&acknowledged_, &looked_up_}) {
    if (const auto found = states->find(table); found != states->end()) states->erase(found);
  }
}

void TableStates::ForgetAll() {
  const std::lock_guard lock(mutex_);
  acknowledged_.clear();
  looked_up_.clear();
}

void OldestStates::Meet(std::size_t table, const TableState& state) {
  if (state.generation == 0) return;
  const std::lock_guard lock(mutex_);
  if (table >= oldest_.size()) oldest_.resize(table + 1);
  TableState& oldest = oldest_[table];
  if (oldest.generation != state.generation || state.step < oldest.step) oldest = state;
}

TableState OldestStates::Of(std::size_t table) const {
  const std::lock_guard lock(mutex_);
  return table < oldest_.size() ? oldest_[table] : TableState{};
}

}  // namespace slotwise::client
