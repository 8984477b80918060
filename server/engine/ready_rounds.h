// ReadyRounds: the rounds that could begin now, in the order in which they became ready.
//
// Waiting lookups stand apart, by what they may share a round with, and by rank, so that a round finds its
// lookups without a walk past other requests. Taking a round costs time by its own parts and by the ranks,
// and by the logarithm of how many rounds wait.
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_SERVER_ENGINE_READY_ROUNDS_H_
#define SLOTWISE_SERVER_ENGINE_READY_ROUNDS_H_

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "server/engine/fingerprint.h"
#include "server/engine/round.h"

namespace slotwise {

class ReadyRounds {
 public:
  // What a part of a table's batch gathers, in bytes.
  using BytesOfPart = std::function<std::uint64_t(TableId, const RoundPart&)>;

  bool empty() const { return rounds_.empty() && lookup_turns_.empty(); }

  // Lookups that may share a round.
  struct LookupKind {
    TableId table{0};
    LookupMode mode = LookupMode::kTrain;
    bool weighted = false;
    auto operator<=>(const LookupKind&) const = default;
  };

  // Adds a lookup, or a round of any other operation.
  void AddLookup(const LookupKind& kind, const RoundPart& part);
  void Add(Round round);

  // Returns the complete step that waits for its round; null if there is none. Valid until the next call that
  // is not const.
  Round* FindStep(const StepKey& key);

  // Takes the round that became ready first; nothing if none is ready. A lookup takes along the other lookups
  // of its table and mode that have weights or have none as it does, in turns of all ranks, as long as the
  // parts' bytes together are at most `max_bytes`. A rank's lookups keep their order.
  std::optional<Round> TakeNext(std::uint64_t max_bytes, const BytesOfPart& bytes_of);

  // Takes off every round of the table; each lookup is a round of its own then.
  std::vector<Round> TakeAllOf(TableId table);

  // Adds what the rounds are, and their order.
  void AddTo(Fingerprint& fingerprint) const;

 private:
  using Turn = std::uint64_t;  // counts lookups and rounds as they become ready
  // Those of one kind. A rank's lookups stand together, in their order.
  using Lookups = std::map<std::pair<Rank, Turn>, RoundPart>;
  struct LookupPlace {
    LookupKind kind;
    Rank rank{0};
  };

  static StepKey KeyOf(const Round& round) { return {round.table, round.step.session, round.step.number}; }
  static Round RoundOf(const LookupKind& kind, const RoundPart& part);

  // Takes the round off, out of every index.
  Round TakeRound(Turn turn);
  // The round of the lookup that became ready first, with those that it takes along.
  Round TakeLookups(std::uint64_t max_bytes, const BytesOfPart& bytes_of);

  std::map<Turn, Round> rounds_;  // of all operations but lookups
  std::map<StepKey, Turn> steps_;
  std::map<TableId, std::set<Turn>> of_table_;  // of rounds_
  std::map<LookupKind, Lookups> lookups_;
  std::map<Turn, LookupPlace> lookup_turns_;
  Turn next_turn_ = 0;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_READY_ROUNDS_H_
