#include "server/engine/schedule/round_scheduler.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace slotwise {
namespace {

std::string Name(const StepId& step) {
  return "step " + std::to_string(step.number) + " of session " + std::to_string(step.session);
}

std::string RateText(const std::optional<float>& rate) {
  return rate ? std::to_string(*rate) : "the table's own";
}

Status Gone(const std::string& table) {
  return NotFound(table + " was dropped while the request waited").Because(Reason::kNoTable);
}

// Returns the refusal after a load. Clients try again, and then use the new tables.
Status Replaced() {
  return Unavailable("a checkpoint was loaded while the request waited").Because(Reason::kStateReplaced);
}

}  // namespace

Decision RoundScheduler::Decide(std::span<const Header> headers) {
  decision_ = {};
  // The clock must not run backwards, so that deadlines have the order in which steps came.
  now_ms_ = std::max(now_ms_, headers[0].now_ms);
  bool all_empty = true;
  bool all_closed = true;
  for (std::size_t r = 0; r < headers.size(); ++r) {
    const Header& header = headers[r];
    closing_ = closing_ || header.closed;
    all_closed = all_closed && header.closed;
    all_empty = all_empty && header.count == 0;
    for (std::uint32_t i = 0; i < header.count; ++i) {
      TakeIn(Rank{static_cast<std::int32_t>(r)}, header.proposals[i]);
    }
  }
  DropDueSteps();
  const bool drained = all_closed && all_empty;
  if (drained) {
    for (const IncompleteStep& step : incomplete_.TakeAll()) {
      ReplyToAll(step,
                 Unavailable("the server is stopping, and parts of the step are missing; nothing of it was "
                             "applied")
                     .Because(Reason::kStopping));
    }
  }
  decision_.round = NextRound();
  decision_.awaited = incomplete_.First();
  decision_.more_is_ready = !ready_.empty();
  decision_.awaits_parts = !incomplete_.empty();
  if (decision_.awaits_parts) decision_.due_in_ms = incomplete_.FirstDeadline() - now_ms_;
  decision_.closing = closing_;
  decision_.finished = drained && ready_.empty();
  return std::move(decision_);
}

void RoundScheduler::TakeIn(Rank rank, const Proposal& proposal) {
  const Ticket ticket{rank, proposal.ticket};
  RoundPart part{ticket,        proposal.samples, proposal.keys, 0, proposal.weighted,
                 proposal.body, proposal.joined};
  const Table* const table = proposal.of_table ? tables_.Get(proposal.table) : nullptr;
  if (proposal.of_table && table == nullptr) return Reply(ticket, Gone("the table"));
  if (proposal.operation_class == OperationClass::kStepPart) return TakeInPart(ticket, proposal, *table);
  // A request without a batch gathers nothing, and several such requests may share one round.
  if (table != nullptr && part.samples > 0) part.bytes = BytesOf(*table, part);
  ready_bytes_ += part.bytes;
  if (proposal.operation_class == OperationClass::kLookup) {
    return ready_.AddLookup({proposal.table, proposal.mode, proposal.weighted, proposal.operation}, part);
  }
  Round round;
  round.operation = proposal.operation;
  round.operation_class = proposal.operation_class;
  round.of_table = proposal.of_table;
  round.drops_table = proposal.drops_table;
  round.table = proposal.table;
  round.payload = proposal.payload;
  round.waiters = {ticket};
  round.parts = {part};
  ready_.Add(std::move(round));
}

void RoundScheduler::TakeInPart(const Ticket& ticket, const Proposal& proposal, const Table& table) {
  if (AnswerFromLedger(ticket, proposal, table)) return;
  const StepId& id = proposal.step;
  const StepKey key = KeyOf(proposal.table, id);
  if (Round* const ready = ready_.FindStep(key)) return TakeInAgain(ticket, proposal, *ready);

  IncompleteStep* step = incomplete_.Find(key);
  if (step == nullptr) {
    step = &incomplete_.Add(key, id.parts, now_ms_ + limits_.step_timeout_ms, id.tables);
    step->operation = proposal.operation;
  } else if (step->parts != id.parts && !step->too_large) {
    return Reply(ticket, InvalidArgument("step.parts is " + std::to_string(id.parts) + ", but " + Name(id) +
                                         " has " + std::to_string(step->parts) + " parts"));
  } else if (step->tables != id.tables) {
    return RefuseOtherTables(ticket, id);
  }
  IncompleteStep::Share* const share = incomplete_.ShareOf(key, *step, id.place, proposal.table);
  if (share == nullptr) return RefuseOtherTables(ticket, id);
  const auto [first, is_new] = share->bodies.emplace(id.part, proposal.body);
  if (first->second != proposal.body && !step->too_large) return RefuseOtherBody(ticket, id);
  if (share->have.empty()) share->learning_rate = proposal.learning_rate;
  if (share->learning_rate != proposal.learning_rate) {
    if (is_new) share->bodies.erase(first);
    return Reply(ticket,
                 InvalidArgument("learning_rate is " + RateText(proposal.learning_rate) + ", but parts of " +
                                 Name(id) + " came with " + RateText(share->learning_rate)));
  }
  RoundPart part{ticket, proposal.samples, proposal.keys, id.part, proposal.weighted, proposal.body};
  part.bytes = BytesOf(table, part);
  if (is_new) {
    share->have.push_back(part);
    ++step->came;
    const TableOptions& options = table.info.options;
    step->bytes += StepBytes(part.samples, part.keys, options.slots, options.dim, part.weighted);
    step->epoch = std::max(step->epoch, id.epoch);
  } else {
    decision_.repeated.push_back(ticket);
  }
  if (step->too_large) {
    Reply(ticket, TooLarge(key));
  } else {
    share->waiters.push_back(ticket);
    if (step->bytes > limits_.max_round_bytes) RefuseTooLarge(key, *step);
  }
  if (!step->complete()) return;
  IncompleteStep complete = incomplete_.Take(key);
  if (!complete.too_large) MakeReady(key, std::move(complete));
}

void RoundScheduler::TakeInAgain(const Ticket& ticket, const Proposal& proposal, Round& ready) {
  const StepId& id = proposal.step;
  const bool same_tables = ready.others.size() + 1 == id.tables;
  Round* const share = !same_tables ? nullptr : id.place == 0 ? &ready : &ready.others[id.place - 1];
  if (share == nullptr || share->table != proposal.table) return RefuseOtherTables(ticket, id);
  const bool same_cut = share->bodies.size() == id.parts;
  if (same_cut && share->bodies[id.part] != proposal.body) return RefuseOtherBody(ticket, id);
  share->waiters.push_back(ticket);
  decision_.repeated.push_back(ticket);
}

bool RoundScheduler::AnswerFromLedger(const Ticket& ticket, const Proposal& proposal, const Table& table) {
  const StepId& id = proposal.step;
  const Ledger& ledger = tables_.ledger();
  const Ledger::Sequence sequence{KeyOf(proposal.table, id).table, id.session};
  if (const Ledger::Applied* const applied = ledger.Find(sequence, id.number)) {
    if (applied->tables() != id.tables || applied->At(id.place).table != proposal.table) {
      RefuseOtherTables(ticket, id);
    } else if (ledger.HadOtherBody(sequence, *applied, id.place * id.parts + id.part, id.tables * id.parts,
                                   proposal.body)) {
      RefuseOtherBody(ticket, id);
    } else {
      Reply(ticket, {}, {applied->At(id.place).step, table.version()});
    }
    return true;
  }
  if (ledger.IsTooOld(sequence, id.number)) {
    Reply(ticket, FailedPrecondition(Name(id) + " is " + std::to_string(Ledger::kWindow) +
                                     " or more behind the session's newest: it may have been applied before")
                      .Because(Reason::kStepTooOld));
    return true;
  }
  if (ledger.MayHaveForgotten(sequence, id.epoch)) {
    Reply(ticket,
          FailedPrecondition(Name(id) +
                             " may have been applied before: the server does not know the session, "
                             "and has forgotten sessions of its epoch, " +
                             std::to_string(id.epoch) + "; begin a session of the server's epoch, which is " +
                             std::to_string(ledger.epoch()))
              .Because(Reason::kSessionForgotten));
    return true;
  }
  if (id.epoch > ledger.epoch()) {
    Reply(ticket,
          FailedPrecondition(Name(id) +
                             " may have been applied before: the server does not know the session, and its "
                             "epoch, " +
                             std::to_string(id.epoch) +
                             ", is another server's, or of before a clock was set "
                             "back; begin a session of the server's epoch, which is " +
                             std::to_string(ledger.epoch()))
              .Because(Reason::kSessionForgotten));
    return true;
  }
  return false;
}

void RoundScheduler::RefuseOtherBody(const Ticket& ticket, const StepId& step) {
  Reply(ticket, FailedPrecondition(
                    "part " + std::to_string(step.part) + " of " + Name(step) +
                    " came before with other keys, weights, gradients or learning rate: a new step needs a "
                    "new number")
                    .Because(Reason::kStepDiffers));
}

void RoundScheduler::RefuseOtherTables(const Ticket& ticket, const StepId& step) {
  Reply(ticket,
        FailedPrecondition(Name(step) + " came before with other tables, or in another order: place " +
                           std::to_string(step.place) + " of " + std::to_string(step.tables) +
                           " is not what it was; a new step needs a new number")
            .Because(Reason::kStepDiffers));
}

void RoundScheduler::MakeReady(const StepKey& key, IncompleteStep complete) {
  const auto round_of = [&](IncompleteStep::Share& share) {
    Round round;
    round.operation = complete.operation;
    round.operation_class = OperationClass::kStepPart;
    round.of_table = true;
    round.table = share.table;
    round.learning_rate = share.learning_rate;
    round.step = {.session = key.session,
                  .number = key.number,
                  .parts = complete.parts,
                  .epoch = complete.epoch,
                  .tables = complete.tables};
    round.bodies.reserve(share.bodies.size());
    for (const auto& [part, body] : share.bodies) round.bodies.push_back(body);
    round.waiters = std::move(share.waiters);
    round.parts = std::move(share.have);
    // Parts that came with one decision are in this order already.
    const auto place = [](const RoundPart& p) { return std::pair(p.ticket.rank, p.part); };
    if (!std::ranges::is_sorted(round.parts, {}, place)) std::ranges::sort(round.parts, {}, place);
    return round;
  };
  auto share = complete.shares.begin();
  Round round = round_of(share->second);
  for (++share; share != complete.shares.end(); ++share) round.others.push_back(round_of(share->second));
  ready_bytes_ += BytesIn(round);
  ready_.Add(std::move(round));
}

void RoundScheduler::RefuseTooLarge(const StepKey& key, IncompleteStep& step) {
  incomplete_.MarkTooLarge(key);
  ReplyToAll(step, TooLarge(key));
  for (auto& [place, share] : step.shares) share.waiters.clear();
}

Status RoundScheduler::TooLarge(const StepKey& key) const {
  return ResourceExhausted("step " + std::to_string(key.number) + " of session " +
                           std::to_string(key.session) + " is larger than the " +
                           std::to_string(limits_.max_round_bytes) +
                           " bytes that one round may gather (limits.max_round_mib)")
      .Because(Reason::kTooLarge);
}

void RoundScheduler::DropDueSteps() {
  for (const IncompleteStep& step : incomplete_.TakeDue(now_ms_)) {
    ReplyToAll(step, DeadlineExceeded("not all parts of the step came within " +
                                      std::to_string(limits_.step_timeout_ms) +
                                      " ms; nothing of it was applied (" + MissingParts(step) + ")")
                         .Because(Reason::kStepIncomplete));
  }
}

// Names the first few missing parts.
std::string RoundScheduler::MissingParts(const IncompleteStep& step) const {
  constexpr std::size_t kMostNamed = 4;
  std::string text;
  std::size_t named = 0;
  const auto name = [&](const std::string& what) {
    if (named++ < kMostNamed) text += (named > 1 ? ", " : "") + what;
  };
  for (std::uint32_t place = 0; place < step.tables && named <= kMostNamed; ++place) {
    const auto share = step.shares.find(place);
    if (share == step.shares.end()) {
      name("all parts of table " + std::to_string(place) + " of the step's " + std::to_string(step.tables));
      continue;
    }
    for (std::uint32_t part = 0; part < step.parts && named <= kMostNamed; ++part) {
      if (share->second.bodies.contains(part)) continue;
      const Table* const table = tables_.Get(share->second.table);
      name("part " + std::to_string(part) + " of " + std::to_string(step.parts) + " of table " +
           (table == nullptr ? std::string() : table->info.options.name.str()));
    }
  }
  if (named > kMostNamed) return text + " and others have not come";
  return text + (named == 1 ? " has not come" : " have not come");
}

std::string RoundScheduler::WhatIsMissing(const StepKey& key, const IncompleteStep& step) const {
  return MissingParts(step) + ": step " + std::to_string(key.number) + " of session " +
         std::to_string(key.session) + " waits, and may be applied once they come";
}

std::optional<Round> RoundScheduler::NextRound() {
  if (const TableId due = tables_.DueBySteps(); due != TableId{0}) {
    Round sweep;
    sweep.number = ++rounds_;
    sweep.operation = kSweep;
    sweep.of_table = true;
    sweep.table = due;
    return sweep;
  }
  std::optional<Round> round = ready_.TakeNext(
      limits_.max_round_bytes,
      [this](TableId table, const RoundPart& part) { return BytesOf(*tables_.Get(table), part); });
  if (!round) return std::nullopt;
  round->number = ++rounds_;
  ready_bytes_ -= BytesIn(*round);
  if (round->drops_table) {
    AnswerAllOf(round->table, Gone("table " + tables_.Get(round->table)->info.options.name.str()));
  }
  return round;
}

std::vector<EarlyAnswer> RoundScheduler::TablesWereReplaced(std::span<const TableId> tables) {
  decision_ = {};
  for (const TableId table : tables) AnswerAllOf(table, Replaced());
  return std::move(decision_.answers);
}

void RoundScheduler::AnswerAllOf(TableId table, const Status& why) {
  for (const Round& round : ready_.TakeAllOf(table)) {
    ready_bytes_ -= BytesIn(round);
    Waiters waiters;
    round.ForEachTable([&](const Round& share) { waiters.emplace_back(share.table, &share.waiters); });
    ReplyToWaiters(table, waiters, why);
  }
  for (const IncompleteStep& step : incomplete_.TakeAllOf(table)) {
    Waiters waiters;
    for (const auto& [place, share] : step.shares) waiters.emplace_back(share.table, &share.waiters);
    ReplyToWaiters(table, waiters, why);
  }
}

void RoundScheduler::ReplyToWaiters(TableId table, const Waiters& waiters, const Status& why) {
  for (const bool of_another : {false, true}) {
    for (const auto& [of, tickets] : waiters) {
      if ((of != table) != of_another) continue;
      for (const Ticket& ticket : *tickets) {
        Reply(ticket, why);
        decision_.answers.back().for_another = of_another;
      }
    }
  }
}

std::uint64_t RoundScheduler::BytesOf(const Table& table, const RoundPart& part) {
  return RoundBytes(part.samples, part.keys, table.info.options.slots, table.info.options.dim, part.weighted);
}

std::uint64_t RoundScheduler::BytesIn(const Round& round) {
  std::uint64_t bytes = 0;
  round.ForEachTable([&](const Round& share) {
    for (const RoundPart& part : share.parts) bytes += part.bytes;
  });
  return bytes;
}

void RoundScheduler::Reply(const Ticket& ticket, Status status, const AppliedStep& applied) {
  decision_.answers.push_back({.ticket = ticket, .status = std::move(status), .applied = applied});
}

void RoundScheduler::ReplyToAll(const std::vector<Ticket>& tickets, const Status& status) {
  for (const Ticket& ticket : tickets) Reply(ticket, status);
}

void RoundScheduler::ReplyToAll(const IncompleteStep& step, const Status& status) {
  for (const auto& [place, share] : step.shares) ReplyToAll(share.waiters, status);
}

std::uint64_t RoundScheduler::HashState() const {
  Fingerprint fingerprint;
  fingerprint.Add(rounds_, now_ms_, closing_);
  ready_.AddTo(fingerprint);
  incomplete_.AddTo(fingerprint);
  return fingerprint.value();
}

}  // namespace slotwise
