#include "client/cpp/acknowledged_steps.h"

#include <algorithm>
#include <iterator>

namespace slotwise::client {
namespace {

// Says what happened to a table that has another lineage. Its count of steps tells nothing of the former's.
std::string WhyOfAnotherLineage(const TableState& before, const TableState& met) {
  const bool same_start = before.incarnation != 0 && before.incarnation == met.incarnation;
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
  const std::uint64_t kept = met.lost_from == 0 ? met.step : std::min(met.step, met.lost_from - 1);
  if (same && kept >= before.step) return {};
  {
    const std::lock_guard lock(mutex_);
    const auto found = newest_.find(table);
    // Steps that a newer start has acknowledged since are not lost.
    if (found != newest_.end() && found->second.lineage == before.lineage &&
        found->second.incarnation == before.incarnation) {
      newest_.erase(found);
    }
  }
  const std::string name = "table " + std::string(table);
  if (!same) return DataLoss(name + WhyOfAnotherLineage(before, met)).Because(Reason::kStepsLost);
  std::string text = name + " has lost its steps " + std::to_string(kept + 1) + " to " +
                     std::to_string(before.step) + ": this client saw its step " +
                     std::to_string(before.step) + " acknowledged, and the server's table ";
  if (kept < met.step) text += "went on from step " + std::to_string(kept) + ", and ";
  return DataLoss(text + "is at step " + std::to_string(met.step)).Because(Reason::kStepsLost);
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
