// ReadyRounds: the rounds that could begin now, in the order in which they became ready.
//
// Waiting lookups stand apart, by what they may share a round with, and in a queue for each rank, so that a
// round finds its lookups without a walk past other requests. Taking a round costs time by its own parts and
// by the ranks, and by the logarithm of how many rounds wait.
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_SERVER_ENGINE_SCHEDULE_READY_ROUNDS_H_
#define SLOTWISE_SERVER_ENGINE_SCHEDULE_READY_ROUNDS_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "server/engine/schedule/fingerprint.h"
#include "server/engine/schedule/round.h"

namespace slotwise {

class ReadyRounds {
 public:
  // What a part of a table's batch gathers, in bytes.
  using BytesOfPart = std::function<std::uint64_t(TableId, const RoundPart&)>;

  bool empty() const { return rounds_.empty() && lookup_turns_.empty(); }
  std::size_t size_without_lookups() const { return rounds_.size(); }

  // Lookups that may share a round.
  struct LookupKind {
    TableId table{0};
    LookupMode mode = LookupMode::kTrain;
    bool weighted = false;
    Operation operation{};
    auto operator<=>(const LookupKind&) const = default;
  };

  // Adds a lookup, or a round of any other class. One of class kShared joins the round of its operation,
  // table and payload that waits.
  void AddLookup(const LookupKind& kind, const RoundPart& part);
  void Add(Round round);

  // Returns the complete step that waits for its round; null if there is none. Valid until the next call that
  // is not const.
  Round* FindStep(const StepKey& key);

  // Takes the round that became ready first; nothing if none is ready. A lookup takes along the other lookups
  // of its table and mode that have weights or have none as it does, in turns of all ranks, as long as the
  // parts' bytes together are at most `max_bytes`. A rank's lookups keep their order. A joined lookup also
  // takes along, as the round's `others`, the lookups of further tables, as long as the one that became
  // ready first is a joined one and fits.
  std::optional<Round> TakeNext(std::uint64_t max_bytes, const BytesOfPart& bytes_of);

  // The batch of the table that became ready first waits for its rows: nothing of the table is taken until
  // Release, and what became ready behind it keeps its order. Rounds of other tables go on; a step that has
  // the table among others waits with it, and so do those others' later rounds. A round of no table waits
  // behind whatever waits. Every rank calls these between the same two rounds.
  void Hold(TableId table) { held_.insert(table); }
  void Release(TableId table) { held_.erase(table); }

  // Takes off every round of the table; each lookup is a round of its own then.
  std::vector<Round> TakeAllOf(TableId table);

  // Adds what the rounds are, and their order.
  void AddTo(Fingerprint& fingerprint) const;

 private:
  using Turn = std::uint64_t;   // counts lookups and rounds as they become ready
  using Place = std::uint32_t;  // in lookups_
  static constexpr Place kNone = ~Place{0};

  struct Lookup {
    static constexpr Turn kNoTurn = ~Turn{0};
    Turn turn = kNoTurn;  // kNoTurn: the place is free
    LookupKind kind;
    RoundPart part;
    Place next = kNone;  // of the rank and kind; of a free place: the next free one
  };
  struct Queue {
    Place first = kNone;
    Place last = kNone;
  };
  // By rank; ranks behind the last one have no lookup of the kind.
  using Queues = std::vector<Queue>;

  static StepKey NameOf(const Round& round) { return KeyOf(round.table, round.step); }
  // What rounds of class kShared are the same by.
  using SharedName = std::tuple<TableId, Operation, Payload>;
  static SharedName SharedNameOf(const Round& round) { return {round.table, round.operation, round.payload}; }
  static Round RoundOf(const LookupKind& kind, const RoundPart& part);

  // Takes the round off, out of every index.
  Round TakeRound(Turn turn);
  // The round of a lookup that became ready first of its table, with those of its kind that it takes along.
  // Adds the parts' bytes to `bytes`, which stay at most `max_bytes` but for the first lookup.
  Round TakeLookups(Place of_first, std::uint64_t max_bytes, const BytesOfPart& bytes_of,
                    std::uint64_t& bytes);
  // Such a round, and, if its first lookup is a joined one, further tables'.
  Round TakeJoinedLookups(std::uint64_t max_bytes, const BytesOfPart& bytes_of);
  // What TakeNext takes while a table is held.
  std::optional<Round> TakeNextOfOthers(std::uint64_t max_bytes, const BytesOfPart& bytes_of);
  bool IsTaken(const std::pair<Turn, Place>& turn) const { return lookups_[turn.second].turn != turn.first; }
  // Takes off the first lookup of the queue, which has one.
  RoundPart TakeFirst(Queue& queue);
  // Forgets the turns of lookups that were taken, up to the first that waits.
  void ForgetTurnsTaken();

  std::map<Turn, Round> rounds_;  // of all operations but lookups
  std::map<StepKey, Turn> steps_;
  std::map<SharedName, Turn> shared_;
  std::map<TableId, std::set<Turn>> of_table_;  // of rounds_
  std::vector<Lookup> lookups_;                 // a place is used again when its lookup was taken
  Place free_ = kNone;
  std::map<LookupKind, Queues> queues_;  // of the kinds of which a lookup waits
  // In order of turns. The first is a lookup that waits; among the others are places whose lookup was taken
  // (and which may hold another turn's now).
  std::deque<std::pair<Turn, Place>> lookup_turns_;
  Turn next_turn_ = 0;
  std::set<TableId> held_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_SCHEDULE_READY_ROUNDS_H_
