// DurableHistory: records which operations the ranks ran in which rounds, over all lives of a server, and
// what clients were told. From this follows the state that a recovery must restore.
//
// An operation changes state as a whole: it is a step with all parts of all its tables, or one request. A
// recovery names the last round that counts. The state must be the one that plain code (the oracle) reaches
// through all rounds up to it. A round whose client got no answer counts as applied, unless the oracle finds
// its table too full; if the disk may have refused the round, either is right.
// Thread-safety: the scheduler's thread.
#ifndef SLOTWISE_TESTS_SIM_DURABLE_HISTORY_H_
#define SLOTWISE_TESTS_SIM_DURABLE_HISTORY_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "server/engine/durability_options.h"
#include "server/engine/schedule/round.h"
#include "tests/sim/asks.h"
#include "tests/sim/model_table.h"
#include "tests/sim/scheduler.h"

namespace slotwise::sim {

// An operation that a client asks for.
struct Op {
  Operation operation = PushRequest::kOperation;
  std::vector<Ask> parts = {};          // of a push, the parts of all its tables; else one part
  std::vector<std::string> names = {};  // [parts] of the part's table
  bool settled = false;                 // applied, before the last observed state
  std::vector<std::optional<std::uint64_t>> told = {};  // [parts] the table's step as the part was told

  bool IsUpdate() const;  // whether OK promises durability; a lookup's does not
};

// The ranks' answers about a table.
struct ObservedTable {
  std::string name;
  TableId id{0};
  TableOptions options;
  TableSummary summary;
};

// What a crash has lost within its allowance.
struct Lost {
  std::uint64_t acknowledged = 0;  // acknowledged updates
  std::uint64_t torn = 0;          // acknowledged updates lost to damage that MayLoseBehind allowed
  Time span = 0;  // in interval mode: from the first lost update to the last that waits for the disk
};

class DurableHistory {
 public:
  // Begins a life. `may_refuse`: the disk may refuse updates for want of space or time.
  void BeginLife(const DurabilityOptions& durability, bool may_refuse);

  // The engines have decided on a round. `find` returns the operation and the part of a ticket; nothing if it
  // is not of the clients. Returns what is wrong, or nothing.
  struct Asker {
    std::size_t op = 0;
    std::size_t part = 0;
    bool* waits = nullptr;  // set if the round answers this request
  };
  std::string OnRound(const Round& round, Time now, const std::function<std::optional<Asker>(Ticket)>& find);

  // A part was answered. `waited`: by its round, and not by the ledger or the request queue.
  std::string OnAnswer(std::size_t op, std::size_t part, const Reply& reply, bool waited);
  // The server reported a saved checkpoint.
  void OnSaved(std::uint64_t round) { KeepUntil(round); }

  // Until the next recovery, damage may take rounds after this one, although they were acknowledged.
  void MayLoseBehind(std::uint64_t round) { may_lose_behind_ = round; }
  void MayLoseNothing() { may_lose_behind_.reset(); }

  // A server has recovered up to that round. Forgets later rounds.
  std::string OnRecovered(std::uint64_t round, Lost& lost);
  // Compares the ranks' answers with the state after all rounds. `settle`: this is just after a recovery.
  std::string Compare(const std::vector<ObservedTable>& observed, bool settle);

  std::deque<Op>& ops() { return ops_; }
  std::uint64_t recovered_round() const { return recovered_; }
  std::uint64_t last_round() const { return entries_.empty() ? recovered_ : entries_.back().round; }

 private:
  enum class End { kUnknown, kApplied, kFull, kRefused };  // full: the table; refused: by the disk
  struct Entry {
    std::uint64_t round = 0;
    std::size_t op = 0;
    End end = End::kUnknown;
    bool fits = true;    // as the last comparison found
    bool alone = false;  // a lookup: the disk refused to record what the round's lookups evict together
    bool acknowledged = false;
    bool may_refuse = false;
    DurabilityMode mode = DurabilityMode::kNone;
    Time interval = 0;
    Time at = 0;
    std::optional<std::uint64_t> erased;  // the number of rows erased or removed that the client was told
  };
  using State = std::map<std::string, ModelTable>;

  // Marks state changes up to that round as durable.
  void KeepUntil(std::uint64_t round);
  Entry* FindEntry(std::size_t op);
  // Something that the disk may have refused: the whole entry, or that lookups share a round's eviction.
  struct Choice {
    Entry* entry;
    bool shared;
  };
  std::vector<Choice> Choices();
  // Applies all entries and sets their `fits`. Returns what is wrong, or nothing.
  std::string ApplyAll(State& state);
  // Makes the rows of lookups that share a round with the entry, and are not before it.
  void MakeSharedRows(std::size_t entry, State& state) const;
  // `fits` becomes false if a table has no room, and then nothing changes. Returns what is wrong, or nothing.
  std::string Apply(const Entry& entry, State& state, bool& fits) const;
  std::string ApplyPush(const Op& op, State& state, bool& fits) const;
  static std::string Difference(const State& state, const std::vector<ObservedTable>& observed);

  DurabilityMode mode_ = DurabilityMode::kNone;
  Time interval_ = 0;
  bool may_refuse_ = false;
  std::uint64_t must_ = 0;       // the last round that no recovery may lose
  std::uint64_t recovered_ = 0;  // the last recovered round
  std::optional<std::uint64_t> may_lose_behind_;
  State settled_;
  std::vector<Entry> entries_;  // after `settled_`, ordered by round
  std::deque<Op> ops_;
  std::map<TableId, std::string> names_;  // of tables that had a round
};

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_DURABLE_HISTORY_H_
