// Ledger: the steps that were applied, by their names, so that no step is applied twice.
//
// Every rank keeps the same ledger, because every rank sees the same rounds. Memory is bounded: of a session
// the ledger keeps the last kWindow numbers, and of all sessions those that recorded a step last, within
// LedgerLimits. A session that was forgotten looks like a new one. Epochs tell them apart: the server's epoch
// rises as sessions come, a session carries the epoch at which its id was drawn, and an unknown session whose
// epoch is no later than that of some forgotten session is not taken for new.
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_SERVER_DURABILITY_LEDGER_H_
#define SLOTWISE_SERVER_DURABILITY_LEDGER_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "slotwise/status.h"
#include "slotwise/types.h"

namespace slotwise {

inline constexpr std::size_t kMaxSessions = 65536;

// Equal on every rank.
struct LedgerLimits {
  std::size_t max_sessions = kMaxSessions;
  std::uint64_t max_bytes = std::uint64_t{256} << 20;
  // The first epoch, above 0. A server begins with a later epoch than its predecessors ended with.
  std::uint64_t first_epoch = 1;
};

class Ledger {
 public:
  // A number this far or further behind the newest applied number of its session can no longer be told from
  // an applied one.
  static constexpr std::uint64_t kWindow = 4096;
  // The epoch rises by one each time that so many sessions have begun.
  static constexpr std::uint64_t kSessionsAnEpoch = 1024;
  // Of a session's newest steps, together at most so many parts, the ledger also knows the parts' bodies.
  static constexpr std::size_t kBodiesASession = 65536;

  // A session's steps of one table, or, with table 0, those of several tables.
  struct Sequence {
    TableId table{0};
    std::uint64_t session = 0;
    auto operator<=>(const Sequence&) const = default;
  };

  // A table's count of steps after a step.
  struct TableStep {
    TableId table{0};
    std::uint64_t step = 0;
  };

  struct Applied {
    std::uint64_t number = 0;
    TableStep first;                // of the step's first table, or its only one
    std::vector<TableStep> others;  // of its further tables
    std::uint64_t first_body = 0;   // counted from the session's first body
    std::uint32_t parts = 0;        // of all its tables together

    std::uint32_t tables() const { return static_cast<std::uint32_t>(1 + others.size()); }
    // REQUIRES: place < tables().
    const TableStep& At(std::uint32_t place) const { return place == 0 ? first : others[place - 1]; }
  };

  explicit Ledger(const LedgerLimits& limits = {}) : limits_(limits) {}
  Ledger(Ledger&&) = default;  // sessions know their places in a list, which a copy would not have
  Ledger& operator=(Ledger&&) = default;

  // Returns the step if it was applied; null if it was not, or is too old to know. Valid until Record or
  // Forget.
  const Applied* Find(const Sequence& sequence, std::uint64_t number) const;

  // Returns whether a part of an applied step is known to have had another body: a hash of what it held.
  // `parts` counts the parts of all the step's tables, and `part` says which of them, table by table. A step
  // that was cut into another number of parts cannot be compared, nor can one whose bodies are no longer
  // known.
  bool HadOtherBody(const Sequence& sequence, const Applied& step, std::uint32_t part, std::uint32_t parts,
                    std::uint32_t body) const;

  // A session's newest step, and the latest epoch that its steps carried.
  struct Newest {
    std::uint64_t number = 0;
    std::uint64_t epoch = 0;
  };
  // Returns nothing if no step of the sequence is known.
  std::optional<Newest> NewestOf(const Sequence& sequence) const;

  // Returns whether `number` is so far behind that it must be refused.
  bool IsTooOld(const Sequence& sequence, std::uint64_t number) const;

  // Returns whether the ledger may have forgotten the session, whose steps must then be refused.
  bool MayHaveForgotten(const Sequence& sequence, std::uint64_t epoch) const;

  // Returns the epoch that a session drawn now carries. It never falls.
  std::uint64_t epoch() const;

  // Records an applied step of a session of that epoch, with its tables in order of place, and the bodies of
  // its parts, table by table; forgets the sessions that recorded a step longest ago, as the limits ask.
  // REQUIRES: Find finds nothing, and the step is not too old. Its epoch is at most epoch(), but for a
  // replay: the server that applied the step may have had another clock.
  void Record(const Sequence& sequence, std::uint64_t number, std::uint64_t epoch,
              std::span<const TableStep> tables, std::span<const std::uint32_t> bodies);

  // Forgets the steps of a table alone that was dropped; no table has its id again.
  void ForgetTable(TableId table);

  // Knows of the steps of a table alone what `saved` knows, too. A session that comes back recorded its steps
  // before all others.
  void RecallTable(const Ledger& saved, TableId table);

  // Returns all that the ledger knows, as bytes for a file (ledger_bytes.cc has the format).
  std::vector<std::byte> Save() const;
  // Knows what Save returned, in addition to its limits. `next_table`: the id of the table that comes next.
  // REQUIRES: it knows nothing yet. DATA_LOSS, with the place: the bytes are not a ledger's; it knows some of
  // it then, and is good for nothing.
  Status Load(std::span<const std::byte> bytes, std::uint32_t next_table);

  std::size_t sessions() const { return sessions_.size(); }
  // An estimate of the memory in use.
  std::uint64_t bytes() const { return bytes_; }

 private:
  struct Session {
    std::deque<Applied> applied;       // by number, the newest kWindow
    std::deque<std::uint32_t> bodies;  // the newest kBodiesASession
    std::uint64_t bodies_before = 0;   // how many were let go
    std::uint64_t others = 0;          // further tables of all steps together
    std::uint64_t epoch = 0;           // the latest that its steps carried
    std::list<Sequence>::iterator age;

    std::uint64_t bytes() const;
  };
  using Sessions = std::map<Sequence, Session>;

  void KeepWithinLimits();
  void ForgetOldest();
  void Erase(Sessions::iterator session);

  LedgerLimits limits_;
  Sessions sessions_;
  std::list<Sequence> ages_;  // the session that recorded a step last is at the back
  std::uint64_t bytes_ = 0;
  std::uint64_t begun_ = 0;                       // sessions
  std::optional<std::uint64_t> forgotten_epoch_;  // the latest of a forgotten session
  std::uint64_t known_epoch_ = 0;                 // the latest that any step carried
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_LEDGER_H_
