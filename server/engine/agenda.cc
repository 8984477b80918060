#include "server/engine/agenda.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace slotwise {
namespace {

std::string Name(const StepId& step) {
  return "step " + std::to_string(step.number) + " of session " + std::to_string(step.session);
}

}  // namespace

std::uint64_t RoundBytes(std::uint64_t samples, std::uint64_t keys, std::uint64_t slots, std::uint64_t dim,
                         bool weighted) {
  const std::uint64_t bags = samples * slots;
  return keys * (sizeof(Key) + (weighted ? sizeof(float) : 0)) + (bags + 1) * sizeof(std::uint32_t) +
         bags * dim * sizeof(float);
}

void Agenda::AddTable(TableId table, std::uint32_t slots, std::uint32_t dim) {
  tables_[table] = TableState{slots, dim, {}};
}

void Agenda::DropTable(TableId table) {
  tables_.erase(table);
  const Status gone = NotFound("the table was dropped while the request waited");
  std::erase_if(ready_, [&](const Round& round) {
    if (round.operation == Operation::kCreateTable || round.table != table) return false;
    for (const Ticket& waiter : round.waiters) Reply(waiter, gone);
    return true;
  });
  std::erase_if(incomplete_, [&](const auto& entry) {
    if (entry.first.table != table) return false;
    for (const Ticket& waiter : entry.second.waiters) Reply(waiter, gone);
    return true;
  });
}

void Agenda::Absorb(std::span<const Header> headers) {
  now_ms_ = headers[0].now_ms;
  bool all_empty = true;
  bool all_closed = true;
  for (std::size_t r = 0; r < headers.size(); ++r) {
    const Header& header = headers[r];
    closing_ = closing_ || header.closed;
    all_closed = all_closed && header.closed;
    all_empty = all_empty && header.count == 0;
    for (std::uint32_t i = 0; i < header.count; ++i) {
      AbsorbOne(Rank{static_cast<std::int32_t>(r)}, header.announcements[i]);
    }
  }
  DropSteps(
      DeadlineExceeded("not all parts of the step came within " + std::to_string(limits_.step_timeout_ms) +
                       " ms; nothing of it was applied"),
      [](const Step& step, std::uint64_t now) { return step.deadline_ms <= now; }, now_ms_);
  drained_ = all_closed && all_empty;
  if (drained_) {
    DropSteps(
        Unavailable("the server is stopping, and parts of the step are missing; nothing of it was applied"),
        [](const Step&, std::uint64_t) { return true; }, 0);
  }
}

void Agenda::AbsorbOne(Rank rank, const Announcement& announcement) {
  const Ticket ticket{rank, announcement.ticket};
  Round round;
  round.operation = announcement.operation;
  round.waiters = {ticket};
  round.parts = {{ticket, announcement.samples, announcement.keys, 0, announcement.weighted}};
  if (announcement.operation == Operation::kCreateTable) {
    ready_.push_back(std::move(round));
    return;
  }
  const auto table = tables_.find(announcement.table);
  if (table == tables_.end())
    return Reply(ticket, NotFound("the table was dropped while the request waited"));
  if (announcement.operation == Operation::kPush) return AbsorbPush(ticket, announcement, table->second);
  round.table = announcement.table;
  round.mode = announcement.mode;
  round.with_digest = announcement.with_digest;
  round.with_state = announcement.with_state;
  round.learning_rate = announcement.learning_rate;
  round.table_steps = announcement.table_steps;
  ready_.push_back(std::move(round));
}

void Agenda::AbsorbPush(const Ticket& ticket, const Announcement& announcement, TableState& table) {
  const StepId& id = announcement.step;
  if (const auto table_step = table.ledger.Find(id.session, id.number)) return Reply(ticket, {}, *table_step);
  if (table.ledger.TooOld(id.session, id.number)) {
    return Reply(ticket,
                 FailedPrecondition(Name(id) + " is " + std::to_string(Ledger::kWindow) +
                                    " or more behind the session's newest: it may have been applied before"));
  }
  const StepKey key{announcement.table, id.session, id.number};
  const auto same = [&](const Round& round) {
    return round.operation == Operation::kPush && round.table == key.table &&
           round.step.session == key.session && round.step.number == key.number;
  };
  if (const auto complete = std::ranges::find_if(ready_, same); complete != ready_.end()) {
    complete->waiters.push_back(ticket);
    repeated_.push_back(ticket);
    return;
  }

  auto [entry, is_new] = incomplete_.try_emplace(key);
  Step& step = entry->second;
  if (is_new) {
    step.parts = id.parts;
    step.deadline_ms = now_ms_ + limits_.step_timeout_ms;
  } else if (step.parts != id.parts && !step.too_large) {
    return Reply(ticket, InvalidArgument("step.parts is " + std::to_string(id.parts) + ", but " + Name(id) +
                                         " has " + std::to_string(step.parts) + " parts"));
  }
  step.waiters.push_back(ticket);
  const RoundPart part{ticket, announcement.samples, announcement.keys, id.part, announcement.weighted};
  if (step.have.emplace(id.part, part).second) {
    step.bytes += BytesOf(key.table, part);
  } else {
    repeated_.push_back(ticket);
  }
  if (step.bytes > limits_.max_round_bytes) RefuseTooLarge(step, id);
  if (step.have.size() < step.parts) return;
  if (step.too_large) {
    incomplete_.erase(entry);
    return;
  }

  Round round;
  round.operation = Operation::kPush;
  round.table = key.table;
  round.step = id;
  round.waiters = std::move(step.waiters);
  for (const auto& [number, have] : step.have) round.parts.push_back(have);
  std::ranges::stable_sort(round.parts, {}, [](const RoundPart& p) { return p.ticket.rank; });
  incomplete_.erase(entry);
  ready_.push_back(std::move(round));
}

void Agenda::RefuseTooLarge(Step& step, const StepId& id) {
  step.too_large = true;
  for (const Ticket& waiter : std::exchange(step.waiters, {})) {
    Reply(waiter,
          ResourceExhausted(Name(id) + " is larger than the " + std::to_string(limits_.max_round_bytes) +
                            " bytes that one round may gather"));
  }
}

std::optional<StepKey> Agenda::FirstIncompleteStep() const {
  std::optional<StepKey> first;
  std::uint64_t deadline_ms = 0;
  for (const auto& [key, step] : incomplete_) {
    if (step.too_large || (first && step.deadline_ms >= deadline_ms)) continue;
    first = key;
    deadline_ms = step.deadline_ms;
  }
  return first;
}

std::optional<Round> Agenda::Next() {
  if (ready_.empty()) return std::nullopt;
  Round round = std::move(ready_.front());
  ready_.pop_front();
  if (round.operation == Operation::kLookup) GatherLookups(round);
  return round;
}

// Of what a round cannot take whole it takes about as much of every rank, whichever came first: results leave by all of
// them, and the slowest is the round's pace.
void Agenda::GatherLookups(Round& round) {
  const auto alike = [&](const Round& other) {
    return other.operation == Operation::kLookup && other.table == round.table && other.mode == round.mode &&
           other.parts[0].weighted == round.parts[0].weighted;
  };
  struct Candidate {
    std::size_t turn;   // how many of its rank go before
    std::size_t place;  // in ready_
  };
  std::vector<Candidate> candidates;
  std::map<Rank, std::size_t> turns{{round.parts[0].ticket.rank, 1}};
  for (std::size_t place = 0; place < ready_.size(); ++place) {
    if (alike(ready_[place])) candidates.push_back({turns[ready_[place].parts[0].ticket.rank]++, place});
  }
  std::ranges::stable_sort(candidates, {}, &Candidate::turn);

  std::uint64_t bytes = BytesOf(round.table, round.parts[0]);
  std::vector<bool> taken(ready_.size());
  for (const Candidate& candidate : candidates) {
    const RoundPart& part = ready_[candidate.place].parts[0];
    const std::uint64_t more = BytesOf(round.table, part);
    if (bytes + more > limits_.max_round_bytes) continue;
    bytes += more;
    round.parts.push_back(part);
    round.waiters.push_back(part.ticket);
    taken[candidate.place] = true;
  }
  std::size_t place = 0;
  std::erase_if(ready_, [&](const Round&) { return taken[place++]; });
  std::ranges::stable_sort(round.parts, {}, [](const RoundPart& p) { return p.ticket.rank; });
}

void Agenda::StepApplied(const Round& round, std::uint64_t table_step) {
  tables_.at(round.table).ledger.Record(round.step.session, round.step.number, table_step);
}

void Agenda::DropSteps(const Status& why, bool (*doomed)(const Step&, std::uint64_t), std::uint64_t value) {
  std::erase_if(incomplete_, [&](const auto& entry) {
    if (!doomed(entry.second, value)) return false;
    for (const Ticket& waiter : entry.second.waiters) Reply(waiter, why);
    return true;
  });
}

std::uint64_t Agenda::BytesOf(TableId table, const RoundPart& part) const {
  const TableState& state = tables_.at(table);
  return RoundBytes(part.samples, part.keys, state.slots, state.dim, part.weighted);
}

void Agenda::Reply(const Ticket& ticket, Status status, std::uint64_t table_step) {
  answers_.push_back({ticket, std::move(status), table_step});
}

}  // namespace slotwise
