#include "server/engine/schedule/ready_rounds.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace slotwise {

void ReadyRounds::AddLookup(const LookupKind& kind, const RoundPart& part) {
  if (free_ == kNone) {
    free_ = static_cast<Place>(lookups_.size());
    lookups_.emplace_back();
  }
  const Place place = free_;
  free_ = lookups_[place].next;
  lookups_[place] = {next_turn_++, kind, part, kNone};
  lookup_turns_.emplace_back(lookups_[place].turn, place);

  Queues& queues = queues_[kind];
  const auto rank = static_cast<std::size_t>(Value(part.ticket.rank));
  if (queues.size() <= rank) queues.resize(rank + 1);
  Queue& queue = queues[rank];
  (queue.first == kNone ? queue.first : lookups_[queue.last].next) = place;
  queue.last = place;
}

void ReadyRounds::Add(Round round) {
  if (round.operation_class == OperationClass::kShared) {
    const auto [waiting, is_new] = shared_.emplace(SharedNameOf(round), next_turn_);
    if (!is_new) {
      std::vector<Ticket>& waiters = rounds_.at(waiting->second).waiters;
      waiters.insert(waiters.end(), round.waiters.begin(), round.waiters.end());
      return;
    }
  }
  const Turn turn = next_turn_++;
  if (round.is_step()) steps_.emplace(NameOf(round), turn);
  if (round.of_table) {
    round.ForEachTable([&](const Round& share) { of_table_[share.table].insert(turn); });
  }
  rounds_.emplace_hint(rounds_.end(), turn, std::move(round));
}

Round* ReadyRounds::FindStep(const StepKey& key) {
  const auto found = steps_.find(key);
  return found == steps_.end() ? nullptr : &rounds_.at(found->second);
}

Round ReadyRounds::RoundOf(const LookupKind& kind, const RoundPart& part) {
  Round round;
  round.operation = kind.operation;
  round.operation_class = OperationClass::kLookup;
  round.of_table = true;
  round.table = kind.table;
  round.mode = kind.mode;
  round.parts = {part};
  round.waiters = {part.ticket};
  return round;
}

Round ReadyRounds::TakeRound(Turn turn) {
  Round round = std::move(rounds_.extract(turn).mapped());
  if (round.is_step()) steps_.erase(NameOf(round));
  if (round.operation_class == OperationClass::kShared) shared_.erase(SharedNameOf(round));
  round.ForEachTable([&](const Round& share) {
    const auto table = of_table_.find(share.table);
    if (table == of_table_.end()) return;
    table->second.erase(turn);
    if (table->second.empty()) of_table_.erase(table);
  });
  return round;
}

std::optional<Round> ReadyRounds::TakeNext(std::uint64_t max_bytes, const BytesOfPart& bytes_of) {
  if (empty()) return std::nullopt;
  if (!held_.empty()) return TakeNextOfOthers(max_bytes, bytes_of);
  const bool lookup_is_first =
      rounds_.empty() || (!lookup_turns_.empty() && lookup_turns_.begin()->first < rounds_.begin()->first);
  return lookup_is_first ? TakeJoinedLookups(max_bytes, bytes_of) : TakeRound(rounds_.begin()->first);
}

std::optional<Round> ReadyRounds::TakeNextOfOthers(std::uint64_t max_bytes, const BytesOfPart& bytes_of) {
  std::set<TableId> waiting = held_;
  bool some_wait = false;
  auto round = rounds_.begin();
  for (auto lookup = lookup_turns_.begin();;) {
    while (lookup != lookup_turns_.end() && IsTaken(*lookup)) ++lookup;
    const bool is_lookup =
        lookup != lookup_turns_.end() && (round == rounds_.end() || lookup->first < round->first);
    if (is_lookup) {
      std::uint64_t bytes = 0;
      if (!waiting.contains(lookups_[lookup->second].kind.table))
        return TakeLookups(lookup->second, max_bytes, bytes_of, bytes);
      some_wait = true;
      ++lookup;
      continue;
    }
    if (round == rounds_.end()) return std::nullopt;
    bool waits = !round->second.of_table && some_wait;
    const auto for_tables = [&](const auto& f) {
      if (round->second.of_table) round->second.ForEachTable([&](const Round& share) { f(share.table); });
    };
    for_tables([&](TableId table) { waits = waits || waiting.contains(table); });
    if (!waits) return TakeRound(round->first);
    if (!round->second.of_table) return std::nullopt;  // all later rounds wait for it
    for_tables([&](TableId table) { waiting.insert(table); });
    some_wait = true;
    ++round;
  }
}

RoundPart ReadyRounds::TakeFirst(Queue& queue) {
  const Place place = queue.first;
  Lookup& lookup = lookups_[place];
  queue.first = std::exchange(lookup.next, free_);
  lookup.turn = Lookup::kNoTurn;
  free_ = place;
  return lookup.part;
}

void ReadyRounds::ForgetTurnsTaken() {
  while (!lookup_turns_.empty() && IsTaken(lookup_turns_.front())) lookup_turns_.pop_front();
}

Round ReadyRounds::TakeJoinedLookups(std::uint64_t max_bytes, const BytesOfPart& bytes_of) {
  const auto next = [&]() -> const Lookup& { return lookups_[lookup_turns_.front().second]; };
  std::uint64_t bytes = 0;
  const bool joined = next().part.joined;
  const auto take = [&] { return TakeLookups(lookup_turns_.front().second, max_bytes, bytes_of, bytes); };
  Round round = take();
  while (joined && !lookup_turns_.empty() && next().part.joined && next().kind.operation == round.operation &&
         bytes + bytes_of(next().kind.table, next().part) <= max_bytes) {
    round.others.push_back(take());
  }
  return round;
}

// A round that cannot take every lookup takes about as many bytes from every rank, whichever lookups came
// first: results leave through all ranks, and the slowest rank sets the round's pace. So the round takes the
// lookup that became ready first, then each rank's first, then each rank's second, and so on; a rank whose
// next lookup does not fit is done.
Round ReadyRounds::TakeLookups(Place of_first, std::uint64_t max_bytes, const BytesOfPart& bytes_of,
                               std::uint64_t& bytes) {
  struct Candidate {
    Turn turn;
    Place place;
  };
  const Lookup& first = lookups_[of_first];
  const auto kind = queues_.find(first.kind);
  Queues& queues = kind->second;
  std::vector<std::uint32_t> taken(queues.size());  // by rank
  std::vector<Candidate> candidates;                // each rank's next lookup, in order of turns
  std::vector<Candidate> next;
  const auto bytes_of_lookup = [&](const Lookup& lookup) { return bytes_of(first.kind.table, lookup.part); };
  const auto take = [&](const Lookup& lookup) {
    bytes += bytes_of_lookup(lookup);
    ++taken[static_cast<std::size_t>(Value(lookup.part.ticket.rank))];
    if (lookup.next != kNone) next.push_back({lookups_[lookup.next].turn, lookup.next});
  };

  for (const Queue& queue : queues) {
    if (queue.first == kNone) continue;
    if (lookups_[queue.first].turn == first.turn) {
      take(first);
    } else {
      candidates.push_back({lookups_[queue.first].turn, queue.first});
    }
  }
  while (!candidates.empty() || !next.empty()) {
    // Requests of one decision come in rank order and need no sorting.
    if (!std::ranges::is_sorted(candidates, {}, &Candidate::turn)) {
      std::ranges::sort(candidates, {}, &Candidate::turn);
    }
    for (const Candidate& candidate : candidates) {
      const Lookup& lookup = lookups_[candidate.place];
      if (bytes + bytes_of_lookup(lookup) <= max_bytes) take(lookup);
    }
    candidates = std::exchange(next, {});
  }

  Round round = RoundOf(first.kind, {});
  round.parts.clear();
  round.waiters.clear();
  const auto parts = std::accumulate(taken.begin(), taken.end(), std::size_t{0});
  round.parts.reserve(parts);
  round.waiters.reserve(parts);
  bool some_wait = false;
  for (std::size_t rank = 0; rank < queues.size(); ++rank) {
    for (std::uint32_t i = 0; i < taken[rank]; ++i) {
      round.parts.push_back(TakeFirst(queues[rank]));
      round.waiters.push_back(round.parts.back().ticket);
    }
    some_wait = some_wait || queues[rank].first != kNone;
  }
  if (!some_wait) queues_.erase(kind);
  ForgetTurnsTaken();
  return round;
}

std::vector<Round> ReadyRounds::TakeAllOf(TableId table) {
  std::vector<Round> rounds;
  for (auto turns = of_table_.find(table); turns != of_table_.end(); turns = of_table_.find(table)) {
    rounds.push_back(TakeRound(*turns->second.begin()));
  }
  for (auto kind = queues_.lower_bound({table, {}, false});
       kind != queues_.end() && kind->first.table == table; kind = queues_.erase(kind)) {
    for (Queue& queue : kind->second) {
      while (queue.first != kNone) rounds.push_back(RoundOf(kind->first, TakeFirst(queue)));
    }
  }
  ForgetTurnsTaken();
  return rounds;
}

void ReadyRounds::AddTo(Fingerprint& fingerprint) const {
  const auto add_part = [&](const RoundPart& part) {
    fingerprint.Add(part.ticket.rank, part.ticket.number, part.samples, part.keys, part.part, part.weighted,
                    part.body, part.joined);
  };
  fingerprint.Add(rounds_.size(), queues_.size(), held_.size());
  for (const TableId table : held_) fingerprint.Add(table);
  for (const auto& [turn, round] : rounds_) {
    fingerprint.Add(turn, round.operation, round.step.session, round.step.number);
    round.ForEachTable([&](const Round& share) {
      fingerprint.Add(share.table, share.learning_rate.has_value());
      for (const RoundPart& part : share.parts) add_part(part);
      for (const Ticket& waiter : share.waiters) fingerprint.Add(waiter.rank, waiter.number);
    });
  }
  for (const auto& [kind, queues] : queues_) {
    fingerprint.Add(kind.table, kind.mode, kind.weighted);
    for (const Queue& queue : queues) {
      for (Place place = queue.first; place != kNone; place = lookups_[place].next) {
        fingerprint.Add(lookups_[place].turn);
        add_part(lookups_[place].part);
      }
    }
  }
}

}  // namespace slotwise
