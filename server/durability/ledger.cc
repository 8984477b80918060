#include "server/durability/ledger.h"

namespace slotwise {

std::optional<std::uint64_t> Ledger::Find(std::uint64_t session, std::uint64_t number) const {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return std::nullopt;
  const auto applied = found->second.applied.find(number);
  if (applied == found->second.applied.end()) return std::nullopt;
  return applied->second;
}

bool Ledger::IsTooOld(std::uint64_t session, std::uint64_t number) const {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return false;
  const std::uint64_t newest = found->second.applied.rbegin()->first;
  return newest >= kWindow && number <= newest - kWindow;
}

void Ledger::Record(std::uint64_t session, std::uint64_t number, std::uint64_t table_step) {
  auto [entry, is_new] = sessions_.try_emplace(session);
  Session& heard = entry->second;
  if (is_new) {
    heard.age = ages_.insert(ages_.end(), session);
    if (ages_.size() > kMaxSessions) {
      sessions_.erase(ages_.front());
      ages_.pop_front();
    }
  } else {
    ages_.splice(ages_.end(), ages_, heard.age);
  }
  heard.applied.emplace(number, table_step);
  const std::uint64_t newest = heard.applied.rbegin()->first;
  while (newest - heard.applied.begin()->first >= kWindow) heard.applied.erase(heard.applied.begin());
}

}  // namespace slotwise
