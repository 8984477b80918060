#include "server/engine/ready_rounds.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <queue>
#include <tuple>
#include <utility>

namespace slotwise {

void ReadyRounds::AddLookup(const LookupKind& kind, const RoundPart& part) {
  const Turn turn = next_turn_++;
  lookups_[kind].emplace(std::pair(part.ticket.rank, turn), part);
  lookup_turns_.emplace_hint(lookup_turns_.end(), turn, LookupPlace{kind, part.ticket.rank});
}

void ReadyRounds::Add(Round round) {
  const Turn turn = next_turn_++;
  if (round.operation == Operation::kPush) steps_.emplace(KeyOf(round), turn);
  if (round.operation != Operation::kCreateTable) of_table_[round.table].insert(turn);
  rounds_.emplace_hint(rounds_.end(), turn, std::move(round));
}

Round* ReadyRounds::FindStep(const StepKey& key) {
  const auto found = steps_.find(key);
  return found == steps_.end() ? nullptr : &rounds_.at(found->second);
}

Round ReadyRounds::RoundOf(const LookupKind& kind, const RoundPart& part) {
  Round round;
  round.operation = Operation::kLookup;
  round.table = kind.table;
  round.mode = kind.mode;
  round.parts = {part};
  round.waiters = {part.ticket};
  return round;
}

Round ReadyRounds::TakeRound(Turn turn) {
  Round round = std::move(rounds_.extract(turn).mapped());
  if (round.operation == Operation::kPush) steps_.erase(KeyOf(round));
  if (const auto table = of_table_.find(round.table); table != of_table_.end()) {
    table->second.erase(turn);
    if (table->second.empty()) of_table_.erase(table);
  }
  return round;
}

std::optional<Round> ReadyRounds::TakeNext(std::uint64_t max_bytes, const BytesOfPart& bytes_of) {
  if (empty()) return std::nullopt;
  const bool lookup_is_first =
      rounds_.empty() || (!lookup_turns_.empty() && lookup_turns_.begin()->first < rounds_.begin()->first);
  return lookup_is_first ? TakeLookups(max_bytes, bytes_of) : TakeRound(rounds_.begin()->first);
}

// A round that cannot take every lookup takes about as much of every rank, whichever lookups came first:
// results leave by all ranks, and the slowest rank sets the round's pace. A rank whose next lookup does not
// fit is done.
Round ReadyRounds::TakeLookups(std::uint64_t max_bytes, const BytesOfPart& bytes_of) {
  struct Candidate {
    std::size_t before;  // how many of its rank's lookups the round takes before it
    Turn turn;
    Lookups::iterator place;
    bool operator>(const Candidate& other) const {
      return std::tie(before, turn) > std::tie(other.before, other.turn);
    }
  };
  const auto [first_turn, first] = *lookup_turns_.begin();
  const auto kind = lookups_.find(first.kind);
  Lookups& waiting = kind->second;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  std::uint64_t bytes = 0;
  Round round = RoundOf(first.kind, {});
  round.parts.clear();
  round.waiters.clear();
  const auto take = [&](const Candidate& candidate) {
    const auto next = std::next(candidate.place);
    if (next != waiting.end() && next->first.first == candidate.place->first.first) {
      candidates.push({candidate.before + 1, next->first.second, next});
    }
    round.parts.push_back(candidate.place->second);
    round.waiters.push_back(candidate.place->second.ticket);
    lookup_turns_.erase(candidate.turn);
    waiting.erase(candidate.place);
  };

  const auto head = waiting.find({first.rank, first_turn});
  bytes += bytes_of(first.kind.table, head->second);
  for (auto place = waiting.begin(); place != waiting.end();
       place = waiting.upper_bound({place->first.first, std::numeric_limits<Turn>::max()})) {
    if (place != head) candidates.push({0, place->first.second, place});
  }
  take({0, first_turn, head});
  while (!candidates.empty()) {
    const Candidate candidate = candidates.top();
    candidates.pop();
    const std::uint64_t more = bytes_of(first.kind.table, candidate.place->second);
    if (bytes + more > max_bytes) continue;
    bytes += more;
    take(candidate);
  }
  if (waiting.empty()) lookups_.erase(kind);
  std::ranges::stable_sort(round.parts, {}, [](const RoundPart& p) { return p.ticket.rank; });
  return round;
}

std::vector<Round> ReadyRounds::TakeAllOf(TableId table) {
  std::vector<Round> rounds;
  for (auto turns = of_table_.find(table); turns != of_table_.end(); turns = of_table_.find(table)) {
    rounds.push_back(TakeRound(*turns->second.begin()));
  }
  auto kind = lookups_.lower_bound({table, {}, false});
  while (kind != lookups_.end() && kind->first.table == table) {
    for (const auto& [place, part] : kind->second) {
      rounds.push_back(RoundOf(kind->first, part));
      lookup_turns_.erase(place.second);
    }
    kind = lookups_.erase(kind);
  }
  return rounds;
}

void ReadyRounds::AddTo(Fingerprint& fingerprint) const {
  const auto add_part = [&](const RoundPart& part) {
    fingerprint.Add(part.ticket.rank, part.ticket.number, part.samples, part.keys, part.part, part.weighted);
  };
  fingerprint.Add(rounds_.size(), lookup_turns_.size());
  for (const auto& [turn, round] : rounds_) {
    fingerprint.Add(turn, round.operation, round.table, round.step.session, round.step.number);
    for (const RoundPart& part : round.parts) add_part(part);
    for (const Ticket& waiter : round.waiters) fingerprint.Add(waiter.rank, waiter.number);
  }
  for (const auto& [kind, lookups] : lookups_) {
    fingerprint.Add(kind.table, kind.mode, kind.weighted);
    for (const auto& [place, part] : lookups) {
      fingerprint.Add(place.second);
      add_part(part);
    }
  }
}

}  // namespace slotwise
