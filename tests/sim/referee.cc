#include "tests/sim/referee.h"

#include <algorithm>
#include <string>
#include <utility>

namespace slotwise::sim {
namespace {

std::string Text(StatusCode code) { return std::string(ToString(code)); }

std::string Text(const Ticket& ticket) {
  return "ticket " + std::to_string(ticket.number) + " of rank " + std::to_string(Value(ticket.rank));
}

std::string Text(const std::optional<StepKey>& key) {
  if (!key) return "none";
  return "step " + std::to_string(key->number) + " of session " + std::to_string(key->session);
}

// A hash of all that the ranks have to decide alike.
std::uint64_t Content(const Decision& decision) {
  std::uint64_t hash = 17;
  const auto add = [&](auto value) {
    hash = hash * 0x9E3779B97F4A7C15 + static_cast<std::uint64_t>(value) + 1;
  };
  for (const EarlyAnswer& answer : decision.answers) {
    add(Value(answer.ticket.rank));
    add(answer.ticket.number);
    add(answer.status.code());
    add(answer.applied.table_step);
    add(answer.applied.now.step);
  }
  for (const Ticket& ticket : decision.repeated)
    add(ticket.number * 64 + static_cast<std::uint64_t>(Value(ticket.rank)));
  add(decision.awaited ? decision.awaited->number + 1 : 0);
  add(decision.closing);
  add(decision.finished);
  add(decision.more_is_ready);
  add(decision.awaits_parts);
  if (!decision.round) return hash;
  add(decision.round->number);
  add(decision.round->operation);
  add(Value(decision.round->table));
  decision.round->ForEachTable([&](const Round& share) {
    add(Value(share.table));
    for (const RoundPart& part : share.parts) add(part.ticket.number * 64 + part.part);
    for (const Ticket& ticket : share.waiters)
      add(ticket.number * 64 + static_cast<std::uint64_t>(Value(ticket.rank)));
  });
  return hash;
}

}  // namespace

Referee::Referee(const Plan& plan, Scheduler& scheduler, Journal& journal)
    : plan_(plan),
      scheduler_(scheduler),
      journal_(journal),
      names_(plan.engine.ledger.max_sessions, plan.engine.ledger.first_epoch),
      headers_(1),
      gathered_(static_cast<std::size_t>(plan.ranks)),
      decisions_(static_cast<std::size_t>(plan.ranks)),
      announced_(static_cast<std::size_t>(plan.ranks)),
      held_(static_cast<std::size_t>(plan.ranks)),
      first_charged_(static_cast<std::size_t>(plan.ranks)),
      decided_(1),
      random_(plan.seed * 19 + 11) {}

Sent* Referee::Find(const Ticket& ticket) {
  Sent* const sent = journal_.Find(Value(ticket.rank), ticket.number);
  if (sent == nullptr) Fail(Text(ticket) + " is no request's");
  return sent;
}

void Referee::OnHeaders(int rank, std::span<const Header> headers) {
  const std::size_t number = ++gathered_[static_cast<std::size_t>(rank)];
  if (number == headers_.size()) headers_.emplace_back(headers.begin(), headers.end());
}

void Referee::OnTaken(int rank, const Request& request, TicketNumber ticket) {
  const std::string caller(request.caller().name());
  Sent* const sent = journal_.Take(rank, caller);
  if (sent == nullptr)
    return Fail("rank " + std::to_string(rank) + " takes what " + caller + " did not send");
  if (sent->ticket != ticket) Fail(sent->Describe() + " has a wrong ticket");
  if (sent->on_taken == nullptr) return;
  const std::string why = std::exchange(sent->on_taken, nullptr)(request, sent->ask);
  if (!why.empty()) Fail(sent->Describe() + " " + why);
}

void Referee::OnDecision(int rank, const EngineState& state, const Decision& decision) {
  const auto r = static_cast<std::size_t>(rank);
  if (state.decisions != ++decisions_[r]) Fail("rank " + std::to_string(rank) + " miscounts its decisions");
  const std::uint64_t number = decisions_[r];
  if (number == decided_.size()) {
    decided_.push_back({state.fingerprint, Content(decision), decision.awaited, decision.closing});
    Judge(decision);
  } else if (decided_[number].fingerprint != state.fingerprint ||
             decided_[number].content != Content(decision)) {
    Fail("decision " + std::to_string(number) + ": rank " + std::to_string(rank) +
         " decides another one than the first rank");
  }
  const std::uint64_t least = ChargedAtLeast(rank, number).all();
  const std::uint64_t most = ChargedAtMost(rank, number, plan_.apart ? 1 : 0).all();
  if (state.queue_bytes < least || state.queue_bytes > most) {
    Fail("rank " + std::to_string(rank) + " charges " + std::to_string(state.queue_bytes) +
         " bytes to its request queue; by its requests it should be " + std::to_string(least) + " to " +
         std::to_string(most));
  }
}

bool Referee::IsShort(int rank) const {
  return (decided_[decisions_[static_cast<std::size_t>(rank)]].short_ranks >> rank & 1) != 0;
}

void Referee::Judge(const Decision& decision) {
  const std::vector<Header>& headers = headers_[decided_.size() - 1];
  now_ms_ = std::max(now_ms_, headers[0].now_ms);
  bool all_closed = true;
  bool all_empty = true;
  for (std::size_t r = 0; r < headers.size(); ++r) {
    const Header& header = headers[r];
    closing_ = closing_ || header.closed;
    all_closed = all_closed && header.closed;
    all_empty = all_empty && header.count == 0;
    for (std::uint32_t i = 0; i < header.count; ++i) {
      const Proposal& proposal = header.proposals[i];
      const Ticket ticket{Rank{static_cast<int>(r)}, proposal.ticket};
      Sent* const sent = Find(ticket);
      if (sent == nullptr) return;
      if (proposal.ticket != ++announced_[r] || !IsOf(proposal, sent->ask)) {
        return Fail(Text(ticket) + " is not proposed as it came: " + sent->Describe());
      }
      sent->proposed = true;
      TakeIn(*sent);
    }
  }
  Drop([](const Step& step, std::uint64_t now) { return step.deadline_ms <= now; }, now_ms_,
       StatusCode::kDeadlineExceeded);
  const bool drained = all_closed && all_empty;
  if (drained) Drop([](const Step&, std::uint64_t) { return true; }, 0, StatusCode::kUnavailable);
  const auto due = std::ranges::find_if(tables_, [](const auto& entry) { return entry.second.IsDue(); });
  if (due != tables_.end()) {
    CheckSweep(decision.round, due->first, due->second);
  } else if (decision.round) {
    CheckRound(*decision.round);
  } else if (!ready_.empty()) {
    Fail("no round is decided, though one is ready: " + ready_.front().first->Describe());
  }
  if (scheduler_.failure()) return;
  NoteWaitingParts(headers);
  CheckAnswers(decision);
  CheckPromises(decision, drained);
}

void Referee::NoteWaitingParts(const std::vector<Header>& headers) {
  for (std::size_t r = 0; r < headers.size(); ++r) {
    for (std::uint32_t i = 0; i < headers[r].count; ++i) {
      const Proposal& proposal = headers[r].proposals[i];
      Sent* const sent = Find({Rank{static_cast<int>(r)}, proposal.ticket});
      if (sent == nullptr || proposal.operation != PushRequest::kOperation) continue;
      if (incomplete_.contains(KeyOf(proposal.table, proposal.step))) {
        sent->found_waiting = decided_.size() - 1;
      }
    }
  }
}

void Referee::TakeIn(Sent& sent) {
  if (sent.ask.operation != CreateTableRequest::kOperation) {
    const auto table = tables_.find(sent.ask.table);
    if (table == tables_.end()) {
      ended_.push_back(&sent);
      return Expect(sent, StatusCode::kNotFound);
    }
    if (sent.ask.operation == PushRequest::kOperation) return TakeInPart(sent, table->second);
  }
  // Summaries of a table that wait share a round, if they ask for the same.
  if (sent.ask.operation == SummarizeRequest::kOperation) {
    for (Ready& ready : ready_) {
      const Ask& first = ready.first->ask;
      if (first.operation != SummarizeRequest::kOperation || first.table != sent.ask.table ||
          first.with_digest != sent.ask.with_digest || first.with_ages != sent.ask.with_ages) {
        continue;
      }
      return ready.waiters.push_back(&sent);
    }
  }
  ready_.push_back({&sent, {}, {{{0, 0}, &sent}}, {&sent}});
}

void Referee::TakeInPart(Sent& sent, ModelTable& table) {
  const StepId& id = sent.ask.step;
  const StepKey key = KeyOf(sent.ask.table, id);
  const auto end = [&](StatusCode code, const AppliedStep& step = {}) {
    ended_.push_back(&sent);
    Expect(sent, Expected{code, {.applied = step}, {}});
  };
  std::uint64_t applied = 0;
  switch (names_.Judge(sent.ask.table, id, sent.ask.body, &applied)) {
    case ModelNames::Verdict::kNew:
      break;
    case ModelNames::Verdict::kApplied:
      return end(StatusCode::kOk, {applied, {0, table.steps()}});
    case ModelNames::Verdict::kAhead:
    case ModelNames::Verdict::kOtherBody:
    case ModelNames::Verdict::kOtherTables:
    case ModelNames::Verdict::kTooOld:
    case ModelNames::Verdict::kForgotten:
      return end(StatusCode::kFailedPrecondition);
  }
  for (Ready& ready : ready_) {
    if (ready.step != key) continue;
    const StepId& first = ready.first->ask.step;
    const auto of_place = ready.parts.find({id.place, 0});
    if (first.tables != id.tables || of_place == ready.parts.end() ||
        of_place->second->ask.table != sent.ask.table) {
      return end(StatusCode::kFailedPrecondition);
    }
    if (first.parts == id.parts && ready.parts.at({id.place, id.part})->ask.body != sent.ask.body) {
      return end(StatusCode::kFailedPrecondition);
    }
    ready.waiters.push_back(&sent);
    return repeated_.push_back(&sent);
  }

  auto [entry, is_new] = incomplete_.try_emplace(key);
  Step& step = entry->second;
  if (is_new) {
    step.tables_count = id.tables;
    step.parts = id.parts;
    step.deadline_ms = now_ms_ + static_cast<std::uint64_t>(plan_.engine.step_timeout.count());
    step.arrival = arrivals_++;
  } else if (step.parts != id.parts && !step.too_large) {
    return end(StatusCode::kInvalidArgument);
  } else if (step.tables_count != id.tables) {
    return end(StatusCode::kFailedPrecondition);
  }
  for (const auto& [place, named] : step.tables) {
    if ((place == id.place) != (named == sent.ask.table)) return end(StatusCode::kFailedPrecondition);
  }
  step.tables.emplace(id.place, sent.ask.table);
  const auto before = step.have.find({id.place, id.part});
  if (before != step.have.end() && before->second->ask.body != sent.ask.body && !step.too_large) {
    return end(StatusCode::kFailedPrecondition);
  }
  const auto first = step.have.lower_bound({id.place, 0});
  const bool is_first = first == step.have.end() || first->first.first != id.place;
  if (!is_first && first->second->ask.rate_of_step != sent.ask.rate_of_step) {
    return end(StatusCode::kInvalidArgument);
  }
  step.waiters.push_back(&sent);
  if (step.have.emplace(std::pair(id.place, id.part), &sent).second) {
    step.bytes += GatheredBytes(sent.ask);
    step.epoch = std::max(step.epoch, id.epoch);
  } else {
    repeated_.push_back(&sent);
  }
  if (step.bytes > plan_.engine.max_round_bytes) {
    step.too_large = true;
    for (Sent* waiter : std::exchange(step.waiters, {})) {
      ended_.push_back(waiter);
      Expect(*waiter, StatusCode::kResourceExhausted);
    }
  }
  if (step.have.size() < std::size_t{step.parts} * step.tables_count) return;
  if (!step.too_large) ready_.push_back({&sent, key, step.have, step.waiters});
  incomplete_.erase(entry);
}

void Referee::Drop(bool (*doomed)(const Step&, std::uint64_t), std::uint64_t value, StatusCode code) {
  std::erase_if(incomplete_, [&](const auto& entry) {
    if (!doomed(entry.second, value)) return false;
    for (Sent* waiter : entry.second.waiters) {
      ended_.push_back(waiter);
      Expect(*waiter, code);
    }
    return true;
  });
}

// What the decision says of the requests that end without a round is what the referee expects of them.
void Referee::CheckAnswers(const Decision& decision) {
  const std::uint64_t number = decided_.size() - 1;
  for (const EarlyAnswer& answer : decision.answers) {
    Sent* const sent = Find(answer.ticket);
    if (sent == nullptr) return;
    const auto place = std::ranges::find(ended_, sent);
    if (place == ended_.end()) {
      return Fail(sent->Describe() + " is answered " + Text(answer.status.code()) + ", but it should wait");
    }
    ended_.erase(place);
    if (sent->expected->code != answer.status.code()) {
      return Fail(sent->Describe() + " is answered " + Text(answer.status.code()) + " instead of " +
                  Text(sent->expected->code) + ": " + answer.status.message());
    }
    const AppliedStep& applied = sent->expected->reply.applied;
    if (answer.status.ok() && answer.applied.table_step != applied.table_step) {
      return Fail(sent->Describe() + " is said to be the table's step " +
                  std::to_string(answer.applied.table_step) + ", but it was " +
                  std::to_string(applied.table_step));
    }
    sent->released = std::min(sent->released, number);
  }
  if (!ended_.empty()) {
    return Fail(ended_[0]->Describe() + " should be answered " + Text(ended_[0]->expected->code) + " now");
  }
  for (const Ticket& ticket : decision.repeated) {
    Sent* const sent = Find(ticket);
    if (sent == nullptr) return;
    const auto place = std::ranges::find(repeated_, sent);
    if (place == repeated_.end())
      return Fail(sent->Describe() + " did not come before, but is taken for a repeated part");
    repeated_.erase(place);
    sent->released = std::min(sent->released, number);
  }
  if (!repeated_.empty()) Fail(repeated_[0]->Describe() + " came before, and still keeps its arrays");
  repeated_.clear();
}

void Referee::CheckPromises(const Decision& decision, bool drained) {
  std::optional<StepKey> first;
  std::uint64_t arrival = 0;
  for (const auto& [key, step] : incomplete_) {
    if (step.too_large || (first && step.arrival > arrival)) continue;
    first = key;
    arrival = step.arrival;
  }
  if (decision.awaited != first) {
    Fail("the step that waits longest for its parts is " + Text(first) + ", not " + Text(decision.awaited));
  }
  if (decision.more_is_ready != !ready_.empty()) Fail("more_is_ready is wrong");
  if (decision.awaits_parts != !incomplete_.empty()) Fail("awaits_parts is wrong");
  if (decision.closing != closing_) Fail("closing is wrong");
  if (decision.finished != (drained && ready_.empty())) Fail("finished is wrong");
}

// A table is swept before all else, without a request.
void Referee::CheckSweep(const std::optional<Round>& round, TableId due, ModelTable& table) {
  const std::string wanted = "table " + std::to_string(Value(due)) + " is due to be swept, and ";
  if (!round) return Fail(wanted + "no round is decided");
  if (round->operation != RemoveRequest::kOperation || round->table != due || !round->waiters.empty() ||
      !round->parts.empty() || round->payload != Payload())
    return Fail(wanted + "round " + std::to_string(round->number) + " is another");
  if (round->number != ++rounds_) return Fail("a sweep has number " + std::to_string(round->number));
  DrawShortRanks();
  table.Sweep(decided_.back().short_ranks == 0 || table.steps() < table.options().ttl_steps);
}

void Referee::DrawShortRanks() {
  if (plan_.short_pause > 0 && random_.OneIn(plan_.short_pause))
    decided_.back().short_ranks = random_.Below(std::uint64_t{1} << plan_.ranks);
}

void Referee::CheckRound(const Round& round) {
  if (round.number != ++rounds_)
    return Fail("round " + std::to_string(rounds_) + " says that it is " + std::to_string(round.number));
  if (ready_.empty()) return Fail("a round is decided, but none is ready");
  const Ready front = ready_.front();
  const Ask& ask = front.first->ask;
  if (round.operation != ask.operation ||
      (round.operation != CreateTableRequest::kOperation && round.operation != PushRequest::kOperation &&
       round.table != ask.table)) {
    return Fail("round " + std::to_string(round.number) + " is a " + NameOf(round.operation) +
                ", but first comes " + front.first->Describe());
  }
  round.ForEachTable([&](const Round& share) { CheckParts(share); });
  if (scheduler_.failure()) return;
  std::uint64_t bytes = 0;
  std::size_t parts = 0;
  round.ForEachTable([&](const Round& share) {
    parts += share.parts.size();
    for (const RoundPart& part : share.parts) bytes += GatheredBytes(Find(part.ticket)->ask);
  });
  if (parts > 1 && bytes > plan_.engine.max_round_bytes) {
    return Fail("round " + std::to_string(round.number) + " gathers " + std::to_string(bytes) + " bytes");
  }
  if (round.operation == PushRequest::kOperation) CheckStep(round, front);
  if (scheduler_.failure()) return;
  const std::vector<Sent*> waiters = TakeWaiters(round);
  if (scheduler_.failure()) return;
  decided_.back().batch_round = ask.has_batch();
  DrawShortRanks();
  for (Sent* waiter : waiters) {
    waiter->released = std::min<std::uint64_t>(waiter->released, decided_.size() - 1);
    if (!waiter->by_call || waiter->ask.operation != LookupRequest::kOperation) continue;
    waiter->held = true;  // by the call, until all of it is answered
    OnHeld(*waiter);
  }
  Run(round, waiters);
}

// The parts of a rank lie together, in the order of ranks.
void Referee::CheckParts(const Round& share) {
  for (std::size_t p = 0; p < share.parts.size(); ++p) {
    const RoundPart& part = share.parts[p];
    Sent* const sent = Find(part.ticket);
    if (sent == nullptr) return;
    if (p > 0 && share.parts[p - 1].ticket.rank > part.ticket.rank) {
      return Fail("a round of table " + std::to_string(Value(share.table)) +
                  " does not have its parts in the order of ranks");
    }
    if (part.samples != sent->ask.samples || part.keys != sent->ask.batch.keys.size() ||
        part.weighted != !sent->ask.batch.weights.empty()) {
      return Fail("a round has wrong sizes for " + sent->Describe());
    }
  }
}

// A step is whole, of all its tables, with the parts that came first.
void Referee::CheckStep(const Round& round, const Ready& front) {
  const StepKey key = KeyOf(round.table, round.step);
  if (key != front.step) {
    return Fail("round " + std::to_string(round.number) + " is of another step than the first");
  }
  std::size_t parts = 0;
  std::uint32_t place = 0;
  round.ForEachTable([&](const Round& share) {
    parts += share.parts.size();
    for (const RoundPart& part : share.parts) {
      const auto have = front.parts.find({place, part.part});
      if (have == front.parts.end() || have->second != Find(part.ticket) ||
          have->second->ask.table != share.table) {
        return Fail(Text(key) + " is not applied with the parts that came first");
      }
    }
    ++place;
  });
  if (parts != front.parts.size()) Fail(Text(key) + " is applied without some of its parts");
}

bool Referee::ShareARound(const Ask& one, const Ask& other) {
  return one.operation == other.operation && one.table == other.table && one.mode == other.mode &&
         one.batch.weights.empty() == other.batch.weights.empty();
}

// A table's lookups of a round, off what is ready: the one that has waited longest, and others of its kind.
std::vector<Sent*> Referee::TakeLookups(const Round& share, bool may_be_more) {
  std::vector<Sent*> waiters;
  for (const Ticket& ticket : share.waiters) waiters.push_back(Find(ticket));
  const auto first = std::ranges::find_if(
      ready_, [](const Ready& ready) { return ready.first->ask.operation == LookupRequest::kOperation; });
  if (first == ready_.end() || std::ranges::count(waiters, first->first) != 1) {
    Fail("a round leaves out the lookup that came first");
    return {};
  }
  if (may_be_more && !first->first->ask.joined)
    Fail("a round has several tables for a lookup that is not joined");
  const Ask ask = first->first->ask;
  for (Sent* waiter : waiters) {
    const bool waits = std::ranges::any_of(ready_, [&](const Ready& ready) { return ready.first == waiter; });
    if (!waits || !ShareARound(ask, waiter->ask) || share.table != ask.table || share.mode != ask.mode) {
      Fail("a round has no place for " + waiter->Describe());
    }
  }
  std::vector<Sent*> parts;
  for (const RoundPart& part : share.parts) parts.push_back(Find(part.ticket));
  if (parts != waiters) Fail("a round has lookups that no caller waits for");
  std::erase_if(ready_, [&](const Ready& ready) { return std::ranges::count(waiters, ready.first) > 0; });
  return waiters;
}

// The requests that the round answers, off what is ready.
std::vector<Sent*> Referee::TakeWaiters(const Round& round) {
  std::vector<Sent*> waiters;
  if (round.operation == LookupRequest::kOperation) {
    round.ForEachTable([&](const Round& share) {
      if (scheduler_.failure()) return;
      const std::vector<Sent*> more = TakeLookups(share, !round.others.empty());
      waiters.insert(waiters.end(), more.begin(), more.end());
    });
    return waiters;
  }
  round.ForEachTable([&](const Round& share) {
    for (const Ticket& ticket : share.waiters) {
      Sent* const sent = Find(ticket);
      if (sent == nullptr) return;
      if (sent->ask.operation != CreateTableRequest::kOperation && sent->ask.table != share.table) {
        Fail(sent->Describe() + " waits for another table's share of a round");
      }
      waiters.push_back(sent);
    }
  });
  std::vector<Sent*> sorted = waiters;
  std::vector<Sent*> expected = ready_.front().waiters;
  std::ranges::sort(sorted);
  std::ranges::sort(expected);
  if (sorted != expected)
    Fail("round " + std::to_string(round.number) + " does not answer those that wait for it");
  std::erase_if(ready_, [&](const Ready& ready) { return std::ranges::count(waiters, ready.first) > 0; });
  return waiters;
}

}  // namespace slotwise::sim
