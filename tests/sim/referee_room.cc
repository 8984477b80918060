// The referee's request queues: the charges of each, and whether a request had to be accepted or refused.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "tests/sim/referee.h"

namespace slotwise::sim {

void Referee::Charged::Add(const Sent& sent, std::uint64_t bytes, std::uint64_t decisions) {
  (sent.waits || sent.found_waiting <= decisions ? parts : others) += bytes;
}

Referee::Charged Referee::ChargedAtLeast(int rank, std::uint64_t decisions) const {
  Charged bytes;
  const auto& accepted = journal_.accepted(rank);
  for (std::size_t i = first_charged_[static_cast<std::size_t>(rank)]; i < accepted.size(); ++i) {
    const Sent& sent = journal_.At(accepted[i]);
    if (sent.released > decisions && !sent.abandoned)
      bytes.Add(sent, sent.ask.bytes() + sent.ask.answer_bytes, decisions);
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
Referee::Charged Referee::ChargedAtMost(int rank, std::uint64_t decisions, std::size_t rounds_kept) const {
  std::uint64_t kept_from = decisions;
  for (std::uint64_t d = decisions - 1; d > 0 && rounds_kept > 0 && decisions > 0; --d) {
    if (!decided_[d].batch_round) continue;
    kept_from = d;
    --rounds_kept;
  }
  const auto& held = held_[static_cast<std::size_t>(rank)];
  const std::uint64_t answers_from = held.empty() ? kept_from : std::min(kept_from, *held.begin());
  Charged bytes;
  for (const std::size_t id : journal_.accepted(rank)) {
    const Sent& sent = journal_.At(id);
    if (sent.let_go) continue;
    if (sent.released >= kept_from) bytes.Add(sent, sent.ask.bytes(), decisions);
    if (sent.released >= answers_from) bytes.Add(sent, sent.ask.answer_bytes, decisions);
  }
  return bytes;
}

void Referee::OnSubmit(int rank, std::span<Sent* const> group, std::span<const std::optional<Status>> refused,
                       bool stopping) {
  std::vector<Sent*> offered;   // to the request queue
  std::vector<Sent*> too_much;  // for any request queue, with what came with it
  std::size_t accepted = 0;
  for (std::size_t i = 0; i < group.size(); ++i) {
    if (refused[i] && refused[i]->message().find("send fewer in a message") != std::string::npos) {
      too_much.push_back(group[i]);
      continue;
    }
    const bool busy = refused[i] && refused[i]->retry_after().count() > 0;
    if (refused[i] && !busy && refused[i]->code() != StatusCode::kUnavailable) {
      CheckRefusal(*group[i], *refused[i]);
      continue;
    }
    if (group[i]->ask.batch.bags() > 0 && gone_.contains(group[i]->ask.table)) {
      return Fail(group[i]->Describe() + " is not refused, though the table's end was answered");
    }
    const auto table = tables_.find(group[i]->ask.table);
    if (group[i]->ask.bytes() > 0 && group[i]->ask.operation != ReadRowsRequest::kOperation &&
        table != tables_.end() &&
        GatheredBytes(group[i]->ask, table->second.options()) > plan_.engine.max_round_bytes) {
      return Fail(group[i]->Describe() + " is larger than a round, and not refused for it");
    }
    offered.push_back(group[i]);
    accepted += refused[i] ? 0 : 1;
  }
  if (!too_much.empty()) {
    std::uint64_t bytes = 0;
    for (const Sent* sent : too_much) bytes += sent->ask.bytes() + sent->ask.answer_bytes;
    if (!offered.empty() || bytes <= MostOfAMessage())
      Fail(too_much[0]->Describe() + " and others are not too much");
    return;
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

std::uint64_t Referee::MostOfAMessage() const {
  return 2 * plan_.engine.max_queue_bytes + plan_.engine.max_round_bytes;
}

// Whether a message has parts of steps of several, and whether other parts of some such step are not in it.
std::pair<bool, bool> Referee::StepsIn(std::span<Sent* const> group) {
  std::map<std::pair<StepKey, std::uint64_t>, std::set<std::uint64_t>> steps;
  for (const Sent* sent : group) {
    const StepId& step = sent->ask.step;
    const std::uint64_t of = std::uint64_t{step.parts} * step.tables;
    if (sent->ask.operation != PushRequest::kOperation || of == 1) continue;
    steps[{KeyOf(sent->ask.table, step), of}].insert(std::uint64_t{step.place} * step.parts + step.part);
  }
  const bool waits =
      std::ranges::any_of(steps, [](const auto& entry) { return entry.second.size() < entry.first.second; });
  return {!steps.empty(), waits};
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
    if (sent->ask.operation != PushRequest::kOperation) continue;
    const StepKey key = KeyOf(sent->ask.table, sent->ask.step);
    favoured_now = favoured_now || (decisions > 0 && decided_[decisions].awaited == key);
    favoured_before = favoured_before || (decisions > 1 && decided_[decisions - 1].awaited == key);
  }
  const std::uint64_t limit = plan_.engine.max_queue_bytes;
  const std::uint64_t share = limit / 4;
  const auto [has_several, waits] = StepsIn(group);
  for (Sent* sent : group) sent->waits = waits;
  // Returns whether there is room beside these charges.
  const auto has_room = [&, has_several = has_several, waits = waits](const Charged& charged, bool favoured) {
    const std::uint64_t all = charged.all() + bytes;
    const std::uint64_t own = waits ? charged.parts : charged.others;
    const auto own_fits = [&](std::uint64_t most) { return own == 0 || own + bytes <= most; };
    if (bytes == 0 || charged.all() == 0) return true;
    if (all <= limit && (!waits || own_fits(limit - share))) return true;
    const bool small = group.size() == 1 || bytes <= share;
    if (!waits && small && (!has_several || all <= MostOfAMessage()) && own_fits(share)) return true;
    return favoured && all <= MostOfAMessage();
  };
  const Charged least = ChargedAtLeast(rank, decisions);
  const Charged most = ChargedAtMost(rank, decisions, plan_.apart ? 2 : 0);
  const bool fits = has_room(most, favoured_now && favoured_before);
  // A small message has more room if its caller has nothing waiting, which the referee does not know.
  const bool has_share = !waits && bytes <= limit / 1024 && least.all() + bytes <= limit + limit / 16;
  const bool may_fit = has_share || has_room(least, favoured_now || favoured_before);
  if (group.size() > 1 && bytes > MostOfAMessage())
    return Fail(what + " are too much, and not refused for it");
  if (accepted && !may_fit) {
    return Fail(what + " is accepted beside " + std::to_string(least.all()) +
                " bytes, though a request queue has " + std::to_string(limit));
  }
  if (!accepted && fits && !closed_now) {
    return Fail(what + " is refused beside " + std::to_string(most.all()) +
                " bytes, though a request queue has " + std::to_string(limit));
  }
}

}  // namespace slotwise::sim
