#include "server/engine/ready_rounds.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <queue>
#include <tuple>
#include <utility>

namespace slotwise {

void ReadyRounds::Add(Round round) {
  const Turn turn = next_turn_++;
  if (round.operation == Operation::kLookup) {
    lookups_[KindOf(round)].emplace(round.parts[0].ticket.rank, turn);
  } else if (round.operation == Operation::kPush) {
    steps_.emplace(KeyOf(round), turn);
  }
  if (round.operation != Operation::kCreateTable) of_table_[round.table].insert(turn);
  rounds_.emplace(turn, std::move(round));
}

Round* ReadyRounds::FindStep(const StepKey& key) {
  const auto found = steps_.find(key);
  return found == steps_.end() ? nullptr : &rounds_.at(found->second);
}

Round ReadyRounds::Take(Rounds::iterator place) {
  const Turn turn = place->first;
  Round round = std::move(rounds_.extract(place).mapped());
  if (round.operation == Operation::kLookup) {
    const auto kind = lookups_.find(KindOf(round));
    kind->second.erase({round.parts[0].ticket.rank, turn});
    if (kind->second.empty()) lookups_.erase(kind);
  } else if (round.operation == Operation::kPush) {
    steps_.erase(KeyOf(round));
  }
  if (const auto table = of_table_.find(round.table); table != of_table_.end()) {
    table->second.erase(turn);
    if (table->second.empty()) of_table_.erase(table);
  }
  return round;
}

std::optional<Round> ReadyRounds::TakeNext(std::uint64_t max_bytes, const BytesOfPart& bytes_of) {
  if (rounds_.empty()) return std::nullopt;
  Round round = Take(rounds_.begin());
  if (round.operation == Operation::kLookup) GatherLookups(round, max_bytes, bytes_of);
  return round;
}

// A round that cannot take every lookup takes about as much of every rank, whichever lookups came first:
// results leave by all ranks, and the slowest rank sets the round's pace. A rank whose next lookup does not
// fit is done.
void ReadyRounds::GatherLookups(Round& round, std::uint64_t max_bytes, const BytesOfPart& bytes_of) {
  const auto kind = lookups_.find(KindOf(round));
  if (kind == lookups_.end()) return;
  const auto& waiting = kind->second;  // by rank, and then by turn
  struct Candidate {
    std::size_t before;  // how many of its rank's lookups go before it
    Turn turn;
    std::set<std::pair<Rank, Turn>>::const_iterator place;
    bool operator>(const Candidate& other) const {
      return std::tie(before, turn) > std::tie(other.before, other.turn);
    }
  };
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  for (auto place = waiting.begin(); place != waiting.end();
       place = waiting.upper_bound({place->first, std::numeric_limits<Turn>::max()})) {
    candidates.push({place->first == round.parts[0].ticket.rank ? 1U : 0U, place->second, place});
  }

  std::uint64_t bytes = bytes_of(round.table, round.parts[0]);
  std::vector<Turn> taken;
  while (!candidates.empty()) {
    const Candidate candidate = candidates.top();
    candidates.pop();
    const RoundPart& part = rounds_.at(candidate.turn).parts[0];
    const std::uint64_t more = bytes_of(round.table, part);
    if (bytes + more > max_bytes) continue;
    bytes += more;
    round.parts.push_back(part);
    round.waiters.push_back(part.ticket);
    taken.push_back(candidate.turn);
    const auto next = std::next(candidate.place);
    if (next != waiting.end() && next->first == candidate.place->first) {
      candidates.push({candidate.before + 1, next->second, next});
    }
  }
  for (const Turn turn : taken) Take(rounds_.find(turn));
  std::ranges::stable_sort(round.parts, {}, [](const RoundPart& p) { return p.ticket.rank; });
}

std::vector<Round> ReadyRounds::TakeAllOf(TableId table) {
  std::vector<Round> rounds;
  for (auto turns = of_table_.find(table); turns != of_table_.end(); turns = of_table_.find(table)) {
    rounds.push_back(Take(rounds_.find(*turns->second.begin())));
  }
  return rounds;
}

void ReadyRounds::AddTo(Fingerprint& fingerprint) const {
  fingerprint.Add(rounds_.size());
  for (const auto& [turn, round] : rounds_) {
    fingerprint.Add(turn, round.operation, round.table, round.step.session, round.step.number);
    for (const RoundPart& part : round.parts) {
      fingerprint.Add(part.ticket.rank, part.ticket.number, part.samples, part.keys, part.part,
                      part.weighted);
    }
    for (const Ticket& waiter : round.waiters) fingerprint.Add(waiter.rank, waiter.number);
  }
}

}  // namespace slotwise
