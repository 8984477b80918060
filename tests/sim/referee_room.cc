// The referee's inboxes: what is charged to each, and whether a request had to be let in or refused.
#include <algorithm>
#include <string>

#include "tests/sim/referee.h"

namespace slotwise::sim {

std::uint64_t Referee::ChargedAtLeast(int rank, std::uint64_t decisions) const {
  std::uint64_t bytes = 0;
  const auto& accepted = journal_.accepted(rank);
  for (std::size_t i = first_charged_[static_cast<std::size_t>(rank)]; i < accepted.size(); ++i) {
    const Sent& sent = journal_.At(accepted[i]);
    if (sent.released > decisions) bytes += sent.ask.bytes() + sent.ask.answer_bytes;
  }
  return bytes;
}

void Referee::OnHeld(const Sent& lookup) {
  held_[static_cast<std::size_t>(lookup.rank)].insert(lookup.released);
}

void Referee::OnLetGo(const Sent& lookup) {
  auto& held = held_[static_cast<std::size_t>(lookup.rank)];
  held.erase(held.find(lookup.released));
}

// Arrays of the last `rounds_kept` rounds on batches may still be in use by the device, and answers of the
// rounds from the first on of which a client holds an answer.
std::uint64_t Referee::ChargedAtMost(int rank, std::uint64_t decisions, std::size_t rounds_kept) const {
  std::uint64_t kept_from = decisions;
  for (std::uint64_t d = decisions - 1; d > 0 && rounds_kept > 0 && decisions > 0; --d) {
    if (!decided_[d].batch_round) continue;
    kept_from = d;
    --rounds_kept;
  }
  const auto& held = held_[static_cast<std::size_t>(rank)];
  const std::uint64_t answers_from = held.empty() ? kept_from : std::min(kept_from, *held.begin());
  std::uint64_t bytes = 0;
  for (const std::size_t id : journal_.accepted(rank)) {
    const Sent& sent = journal_.At(id);
    if (sent.released >= kept_from) bytes += sent.ask.bytes();
    if (sent.released >= answers_from) bytes += sent.ask.answer_bytes;
  }
  return bytes;
}

void Referee::OnSubmit(int rank, std::span<Sent* const> group, std::span<const std::optional<Status>> refused,
                       bool stopping) {
  std::vector<Sent*> offered;  // to the inbox
  std::size_t accepted = 0;
  for (std::size_t i = 0; i < group.size(); ++i) {
    if (refused[i] && refused[i]->code() != StatusCode::kUnavailable) {
      CheckRefusal(*group[i], *refused[i]);
      continue;
    }
    if (group[i]->ask.batch.bags() > 0 && gone_.contains(group[i]->ask.table)) {
      return Fail(group[i]->Describe() + " is not refused, though the table's end was answered");
    }
    const auto table = tables_.find(group[i]->ask.table);
    if (group[i]->ask.bytes() > 0 && group[i]->ask.operation != Operation::kReadRows &&
        table != tables_.end() &&
        GatheredBytes(group[i]->ask, table->second.options()) > plan_.engine.max_round_bytes) {
      return Fail(group[i]->Describe() + " is larger than a round, and not refused for it");
    }
    offered.push_back(group[i]);
    accepted += refused[i] ? 0 : 1;
  }
  if (offered.empty()) return;
  if (accepted != 0 && accepted != offered.size()) {
    return Fail(std::to_string(accepted) + " of " + std::to_string(offered.size()) +
                " requests that came together are accepted");
  }
  CheckRoom(rank, offered, accepted > 0, stopping);
  open_ += accepted;
  for (Sent* sent : offered) {
    if (accepted > 0) journal_.Accept(*sent);
  }
}

void Referee::CheckRefusal(const Sent& sent, const Status& status) {
  const auto table = tables_.find(sent.ask.table);
  if (status.code() == StatusCode::kNotFound && table == tables_.end()) return;
  if (status.code() == StatusCode::kResourceExhausted &&
      (table == tables_.end() ||
       GatheredBytes(sent.ask, table->second.options()) > plan_.engine.max_round_bytes)) {
    return;
  }
  Fail(sent.Describe() + " is refused for no reason: " + status.message());
}

void Referee::CheckRoom(int rank, std::span<Sent* const> group, bool accepted, bool stopping) {
  const std::uint64_t decisions = decisions_[static_cast<std::size_t>(rank)];
  const std::string what = group[0]->Describe() + (group.size() > 1 ? " and others" : "");
  const bool closed_before = decisions > 1 && decided_[decisions - 1].closing;
  const bool closed_now = decisions > 0 && decided_[decisions].closing;
  if (stopping || closed_before) {
    if (accepted) Fail(what + " is accepted by a rank that stops");
    return;
  }
  std::uint64_t bytes = 0;
  bool favoured_now = false;
  bool favoured_before = false;
  for (const Sent* sent : group) {
    bytes += sent->ask.bytes() + sent->ask.answer_bytes;
    if (sent->ask.operation != Operation::kPush) continue;
    const StepKey key = KeyOf(sent->ask.table, sent->ask.step);
    favoured_now = favoured_now || (decisions > 0 && decided_[decisions].awaited == key);
    favoured_before = favoured_before || (decisions > 1 && decided_[decisions - 1].awaited == key);
  }
  const std::uint64_t limit = plan_.engine.max_inbox_bytes;
  const std::uint64_t least = ChargedAtLeast(rank, decisions);
  const std::uint64_t most = ChargedAtMost(rank, decisions, plan_.apart ? 2 : 0);
  const std::uint64_t beyond = 2 * limit + plan_.engine.max_round_bytes;
  const bool fits = bytes == 0 || most == 0 || most + bytes <= limit ||
                    (favoured_now && favoured_before && most + bytes <= beyond);
  const bool may_fit = bytes == 0 || least == 0 || least + bytes <= limit ||
                       ((favoured_now || favoured_before) && least + bytes <= beyond);
  if (accepted && !may_fit) {
    return Fail(what + " is accepted beside " + std::to_string(least) + " bytes, though an inbox has " +
                std::to_string(limit));
  }
  if (!accepted && fits && !closed_now) {
    return Fail(what + " is refused beside " + std::to_string(most) + " bytes, though an inbox has " +
                std::to_string(limit));
  }
}

}  // namespace slotwise::sim
