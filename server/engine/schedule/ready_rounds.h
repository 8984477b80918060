// ReadyRounds: the rounds that could begin now, in the order in which they became ready.
//
// Waiting lookups are kept apart, grouped by the lookups with which they may share a round, in a queue for
// each rank, so that a round finds its lookups without passing over other requests. Taking a round takes time
// in proportion to its parts, the ranks, and the logarithm of the number of waiting rounds.
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
  // Returns the bytes that a part of a table's batch gathers.
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

  // Add a lookup, or a round of any other class. A round of class kShared joins the waiting round with the
  // same operation, table and payload.
  void AddLookup(const LookupKind& kind, const RoundPart& part);
  void Add(Round round);

  // Returns the waiting round of a complete step; null if there is none. Valid until the next non-const call.
  Round* FindStep(const StepKey& key);

  // Removes and returns the round that became ready first; nothing if none is ready. A lookup takes along the
  // other lookups of its kind (table, mode, with weights or without), in turns of all ranks, as long as the
  // parts' bytes together are at most `max_bytes`. A rank's lookups keep their order. A joined lookup also
  // takes along lookups of further tables, as the round's `others`, as long as the next table's first lookup
  // is a joined one and fits.
  std::optional<Round> TakeNext(std::uint64_t max_bytes, const BytesOfPart& bytes_of);

  // Hold: no round of the table is taken until Release, because the table's first batch waits for its rows;
  // its later rounds keep their order. Rounds of other tables go on. A step of several tables waits with a
  // held one, and the later rounds of its other tables wait too. A round of no table waits behind all earlier
  // rounds. Every rank calls these between the same two rounds.
  void Hold(TableId table) { held_.insert(table); }
  void Release(TableId table) { held_.erase(table); }

  // Removes and returns every round of the table; each lookup becomes a round of its own.
  std::vector<Round> TakeAllOf(TableId table);

  // Adds the rounds' state and order.
  void AddTo(Fingerprint& fingerprint) const;

 private:
  using Turn = std::uint64_t;   // counts lookups and rounds as they become ready
  using Place = std::uint32_t;  // in lookups_
  static constexpr Place kNone = ~Place{0};

  struct Lookup {
    static constexpr Turn kNoTurn = ~Turn{0};
    Turn turn = kNoTurn;  // kNoTurn if the place is free
    LookupKind kind;
    RoundPart part;
    Place next = kNone;  // the next lookup of the rank and kind, or the next free place
  };
  struct Queue {
    Place first = kNone;
    Place last = kNone;
  };
  // By rank; ranks behind the last one have no lookup of the kind.
  using Queues = std::vector<Queue>;

  static StepKey NameOf(const Round& round) { return KeyOf(round.table, round.step); }
  // Identifies a round of class kShared.
  using SharedName = std::tuple<TableId, Operation, Payload>;
  static SharedName SharedNameOf(const Round& round) { return {round.table, round.operation, round.payload}; }
  static Round RoundOf(const LookupKind& kind, const RoundPart& part);

  // Removes the round from every index, and returns it.
  Round TakeRound(Turn turn);
  // Returns the round of the lookup `of_first`, the first of its kind, and the lookups that it takes along.
  // Adds the parts' bytes to `bytes`, which exceed `max_bytes` only if the first lookup alone does.
  Round TakeLookups(Place of_first, std::uint64_t max_bytes, const BytesOfPart& bytes_of,
                    std::uint64_t& bytes);
  // Returns such a round, and, if its first lookup is a joined one, further tables' lookups.
  Round TakeJoinedLookups(std::uint64_t max_bytes, const BytesOfPart& bytes_of);
  // Does TakeNext while a table is held.
  std::optional<Round> TakeNextOfOthers(std::uint64_t max_bytes, const BytesOfPart& bytes_of);
  bool IsTaken(const std::pair<Turn, Place>& turn) const { return lookups_[turn.second].turn != turn.first; }
  // Removes and returns the first lookup. REQUIRES: the queue is not empty.
  RoundPart TakeFirst(Queue& queue);
  // Forgets the turns of taken lookups, up to the first one that waits.
  void ForgetTurnsTaken();

  std::map<Turn, Round> rounds_;  // all operations but lookups
  std::map<StepKey, Turn> steps_;
  std::map<SharedName, Turn> shared_;
  std::map<TableId, std::set<Turn>> of_table_;  // of rounds_
  std::vector<Lookup> lookups_;                 // places are reused
  Place free_ = kNone;
  std::map<LookupKind, Queues> queues_;  // only kinds with waiting lookups
  // In order of turns. The first is a waiting lookup; among the others are places whose lookup was taken and
  // which may hold another turn's lookup now.
  std::deque<std::pair<Turn, Place>> lookup_turns_;
  Turn next_turn_ = 0;
  std::set<TableId> held_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_SCHEDULE_READY_ROUNDS_H_
