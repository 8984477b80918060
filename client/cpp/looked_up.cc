#include "client/cpp/looked_up.h"

namespace slotwise::client {

TableState LookedUpStates::Of(std::string_view table) const {
  const std::lock_guard lock(mutex_);
  const auto found = latest_.find(table);
  return found == latest_.end() ? TableState{} : found->second;
}

void LookedUpStates::Note(std::string_view table, const TableState& state) {
  if (state.lineage == 0) return;
  const std::lock_guard lock(mutex_);
  const auto found = latest_.find(table);
  if (found != latest_.end()) {
    found->second = state;
  } else {
    latest_.emplace(table, state);
  }
}

void LookedUpStates::Forget(std::string_view table) {
  const std::lock_guard lock(mutex_);
  if (const auto found = latest_.find(table); found != latest_.end()) latest_.erase(found);
}

void LookedUpStates::ForgetAll() {
  const std::lock_guard lock(mutex_);
  latest_.clear();
}

void OldestStates::Meet(std::size_t table, const TableState& state) {
  if (state.lineage == 0) return;
  const std::lock_guard lock(mutex_);
  if (table >= oldest_.size()) oldest_.resize(table + 1);
  TableState& oldest = oldest_[table];
  if (oldest.lineage != state.lineage || state.step < oldest.step) oldest = state;
}

TableState OldestStates::Of(std::size_t table) const {
  const std::lock_guard lock(mutex_);
  return table < oldest_.size() ? oldest_[table] : TableState{};
}

}  // namespace slotwise::client
