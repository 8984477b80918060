// Ledger: remembers the steps that were applied, by their names, so that no step is applied twice.
//
// Every rank keeps the same ledger, because every rank sees the same rounds. Memory is bounded: the ledger
// keeps a session's last kWindow numbers, and the sessions that recorded a step last, within LedgerLimits. A
// forgotten session looks like a new one, and epochs tell them apart. The server's epoch rises as sessions
// come, and a session carries the epoch at which its id was drawn. An unknown session counts as new only if
// its epoch is later than the latest epoch of a forgotten session.
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

// The limits are equal on every rank.
struct LedgerLimits {
  std::size_t max_sessions = kMaxSessions;
  std::uint64_t max_bytes = std::uint64_t{256} << 20;
  // The first epoch, above 0. It is later than the last epochs of earlier servers.
  std::uint64_t first_epoch = 1;
};

class Ledger {
 public:
  // A number that is this far or further behind its session's newest applied number cannot be told from an
  // applied one any more.
  static constexpr std::uint64_t kWindow = 4096;
  // The epoch rises by one for each this many sessions.
  static constexpr std::uint64_t kSessionsAnEpoch = 1024;
  // The ledger remembers the hashes of bodies of a session's newest steps, up to this many parts.
  static constexpr std::size_t kBodiesASession = 65536;

  // A session's steps of one table; table 0 stands for steps of several tables.
  struct Sequence {
    TableId table{0};
    std::uint64_t session = 0;
    auto operator<=>(const Sequence&) const = default;
  };

  // A table's number of steps after a step.
  struct TableStep {
    TableId table{0};
    std::uint64_t step = 0;
  };

  struct Applied {
    std::uint64_t number = 0;
    TableStep first;                // of the step's first or only table
    std::vector<TableStep> others;  // of the step's further tables
    std::uint64_t first_body = 0;   // index of the first part's body among all bodies of the session
    std::uint32_t parts = 0;        // of all tables together

    std::uint32_t tables() const { return static_cast<std::uint32_t>(1 + others.size()); }
    // REQUIRES: place < tables().
    const TableStep& At(std::uint32_t place) const { return place == 0 ? first : others[place - 1]; }
  };

  explicit Ledger(const LedgerLimits& limits = {}) : limits_(limits) {}
  Ledger(Ledger&&) = default;  // sessions hold iterators into a list, so there is no copy
  Ledger& operator=(Ledger&&) = default;

  // Returns the step if it was applied; null if it was not, or is too old to be known. The pointer is valid
  // until Record or a Forget.
  const Applied* Find(const Sequence& sequence, std::uint64_t number) const;

  // Returns whether a part of an applied step is known to have had another body. `body` is a hash of the
  // part's contents, `parts` is the number of parts of all the step's tables, and `part` is an index among
  // them, table by table. Returns false if the step had another number of parts, or its bodies are no longer
  // known.
  bool HadOtherBody(const Sequence& sequence, const Applied& step, std::uint32_t part, std::uint32_t parts,
                    std::uint32_t body) const;

  // A session's newest step, and the latest epoch of its steps.
  struct Newest {
    std::uint64_t number = 0;
    std::uint64_t epoch = 0;
  };
  // Returns nothing if no step of the sequence is known.
  std::optional<Newest> NewestOf(const Sequence& sequence) const;

  // Returns whether `number` is so old that the step must be refused.
  bool IsTooOld(const Sequence& sequence, std::uint64_t number) const;

  // Returns whether the ledger may have forgotten the session. Its steps must then be refused.
  bool MayHaveForgotten(const Sequence& sequence, std::uint64_t epoch) const;

  // Returns the epoch for a session that is drawn now. The epoch never falls.
  std::uint64_t epoch() const;

  // Records an applied step of a session of that epoch, with its tables in order of place and the bodies of
  // its parts, table by table. Then forgets the sessions whose last step is oldest, as the limits ask.
  // REQUIRES: Find finds nothing, and the step is not too old. `epoch` is at most epoch(), except in a
  // replay: the server that applied the step may have had another clock.
  void Record(const Sequence& sequence, std::uint64_t number, std::uint64_t epoch,
              std::span<const TableStep> tables, std::span<const std::uint32_t> bodies);

  // Forgets the steps of a dropped table alone. No later table gets its id.
  void ForgetTable(TableId table);

  // Adds what `saved` knows about the steps of the table alone. A session that returns counts as older than
  // all present ones.
  void RecallTable(const Ledger& saved, TableId table);

  // Returns the ledger's contents as bytes for a file. ledger_bytes.cc has the format.
  std::vector<std::byte> Save() const;
  // Loads what Save returned, and keeps its own limits, but may raise the first epoch. `next_table` is the id
  // of the next table that will be made. REQUIRES: the ledger is empty. DATA_LOSS, with the place: the bytes
  // are no ledger's. The ledger is then unusable.
  Status Load(std::span<const std::byte> bytes, std::uint32_t next_table);

  std::size_t sessions() const { return sessions_.size(); }
  // Returns an estimate of the memory in use.
  std::uint64_t bytes() const { return bytes_; }

 private:
  struct Session {
    std::deque<Applied> applied;       // ordered by number, the newest kWindow
    std::deque<std::uint32_t> bodies;  // the newest kBodiesASession
    std::uint64_t bodies_before = 0;   // the number of older bodies, which were dropped
    std::uint64_t others = 0;          // the number of further tables of all steps together
    std::uint64_t epoch = 0;           // the latest of its steps
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
  std::uint64_t begun_ = 0;                       // sessions that have begun
  std::optional<std::uint64_t> forgotten_epoch_;  // the latest one of a forgotten session
  std::uint64_t known_epoch_ = 0;                 // the latest one of any step
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_LEDGER_H_
