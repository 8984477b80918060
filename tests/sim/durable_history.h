// DurableHistory: which operations the ranks ran in which rounds, over all lives of a server, what clients
// were told of them, and so what a recovery has to bring back.
//
// An operation is what changes state as a whole: a step with all its parts of all its tables, or one request.
// A recovery names the last round that counts: the state has to be that of a table that plain code (the
// oracle) takes through all rounds until then. A round whose client heard nothing has been applied, unless
// the disk may have refused it: then either is right.
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

// What a client asks for.
struct Op {
  Operation operation = PushRequest::kOperation;
  std::vector<Ask> parts = {};                          // of a push, of all its tables; else one
  std::vector<std::string> names = {};                  // [parts] of the part's table
  bool settled = false;                                 // applied, before the last state that was looked at
  std::vector<std::optional<std::uint64_t>> told = {};  // [parts] as which step of the table it was applied

  bool IsUpdate() const;  // whether OK promises something: a lookup's does not
};

// What ranks say of a table.
struct ObservedTable {
  std::string name;
  TableId id{0};
  TableOptions options;
  TableSummary summary;
};

// What a crash was allowed to lose, and has.
struct Lost {
  std::uint64_t acknowledged = 0;  // updates
  std::uint64_t torn = 0;          // such that damage took, of MayLoseBehind
  Time span = 0;  // in interval mode: from the first of them to the last that waits for the disk
};

class DurableHistory {
 public:
  // A life begins. `may_refuse`: its disk may, for want of space or time.
  void BeginLife(const DurabilityOptions& durability, bool may_refuse);

  // The engines decided on a round; `find` returns who asked: an operation and its part; nothing if the
  // clients did not ask. Returns what is wrong, or nothing.
  struct Asker {
    std::size_t op = 0;
    std::size_t part = 0;
    bool* waits = nullptr;  // is set if the round answers this request
  };
  std::string OnRound(const Round& round, Time now, const std::function<std::optional<Asker>(Ticket)>& find);

  // A part was answered. `waited`: by its round, not by the ledger or the request queue.
  std::string OnAnswer(std::size_t op, std::size_t part, const Reply& reply, bool waited);
  // A checkpoint was reported to be saved.
  void OnSaved(std::uint64_t round) { KeepUntil(round); }

  // Until a recovery: damage may take what was acknowledged after that round, or no longer.
  void MayLoseBehind(std::uint64_t round) { may_lose_behind_ = round; }
  void MayLoseNothing() { may_lose_behind_.reset(); }

  // A server recovered up to that round. Forgets what came after it.
  std::string OnRecovered(std::uint64_t round, Lost& lost);
  // Compares what the ranks say with what the rounds amount to. `settle`: right behind a recovery.
  std::string Compare(const std::vector<ObservedTable>& observed, bool settle);

  std::deque<Op>& ops() { return ops_; }
  std::uint64_t recovered_round() const { return recovered_; }
  std::uint64_t last_round() const { return entries_.empty() ? recovered_ : entries_.back().round; }

 private:
  enum class End { kUnknown, kApplied, kRefused };
  struct Entry {
    std::uint64_t round = 0;
    std::size_t op = 0;
    End end = End::kUnknown;
    bool acknowledged = false;
    bool may_refuse = false;
    DurabilityMode mode = DurabilityMode::kNone;
    Time interval = 0;
    Time at = 0;
    std::optional<std::uint64_t> erased;  // that the client was told
  };
  using State = std::map<std::string, ModelTable>;

  // What changed state until that round is there for good.
  void KeepUntil(std::uint64_t round);
  Entry* FindEntry(std::size_t op);
  // Returns what is wrong.
  std::string Apply(const Entry& entry, State& state) const;
  std::string ApplyPush(const Op& op, State& state) const;
  static std::string Difference(const State& state, const std::vector<ObservedTable>& observed);

  DurabilityMode mode_ = DurabilityMode::kNone;
  Time interval_ = 0;
  bool may_refuse_ = false;
  std::uint64_t must_ = 0;       // no recovery may fall behind this round, which changed state
  std::uint64_t recovered_ = 0;  // the round that was recovered last
  std::optional<std::uint64_t> may_lose_behind_;
  State settled_;
  std::vector<Entry> entries_;  // behind that, in the order of rounds
  std::deque<Op> ops_;
};

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_DURABLE_HISTORY_H_
