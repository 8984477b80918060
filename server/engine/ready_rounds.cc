#include "server/engine/ready_rounds.h"

#include <algorithm>
#include <queue>
#include <tuple>
#include <utility>

namespace slotwise {

void ReadyRounds::Add(Round round) {
  const Turn turn = next_turn_++;
  if (round.operation == Operation::kLookup) {
    lookups_[KindOf(round)][round.parts[0].ticket.rank].push_back(turn);
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
    const auto rank = kind->second.find(round.parts[0].ticket.rank);
    rank->second.pop_front();
    if (rank->second.empty()) kind->second.erase(rank);
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
  using Candidate =
      std::tuple<std::size_t, Turn, Rank>;  // how many of its rank go before it, and when it came
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  for (const auto& [rank, turns] : kind->second) {
    candidates.emplace(rank == round.parts[0].ticket.rank ? 1 : 0, turns.front(), rank);
  }

  std::uint64_t bytes = bytes_of(round.table, round.parts[0]);
  while (!candidates.empty()) {
    const auto [before, turn, rank] = candidates.top();
    candidates.pop();
    const auto place = rounds_.find(turn);
    const RoundPart part = place->second.parts[0];
    const std::uint64_t more = bytes_of(round.table, part);
    if (bytes + more > max_bytes) continue;
    bytes += more;
    round.parts.push_back(part);
    round.waiters.push_back(part.ticket);
    // Taking the last lookup of a kind takes its queues off: look first whether the rank has another one.
    const auto& turns = kind->second.at(rank);
    const std::optional<Turn> next = turns.size() > 1 ? std::optional(turns[1]) : std::nullopt;
    Take(place);
    if (next) candidates.emplace(before + 1, *next, rank);
  }
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
