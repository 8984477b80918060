// Agenda: what all ranks together have to do, and what comes next.
//
// Every rank feeds its own agenda the same headers in the same order, so all agendas stay equal and pick the same
// rounds: nobody leads. It is a plain state machine without threads, clocks or messages.
//
// Order: what became ready first is done first. A lookup is ready at once and takes along the other ready lookups of
// the same table and mode, and like it with or without weights, as far as a round can hold them. A step is ready when
// all its parts are there; it has a round of its own, because it is one optimizer update.
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_SERVER_ENGINE_AGENDA_H_
#define SLOTWISE_SERVER_ENGINE_AGENDA_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "server/durability/ledger.h"
#include "server/engine/announcement.h"
#include "slotwise/status.h"
#include "slotwise/types.h"

namespace slotwise {

// One request, anywhere.
struct Ticket {
  Rank rank{0};
  TicketNumber number = 0;
  friend bool operator==(const Ticket&, const Ticket&) = default;
};

// One request's share of a round.
struct RoundPart {
  Ticket ticket;
  std::uint32_t samples = 0;
  std::uint32_t keys = 0;
  std::uint32_t part = 0;  // of its step
  bool weighted = false;
};

// What the ranks do next, together.
struct Round {
  Operation operation = Operation::kLookup;
  LookupMode mode = LookupMode::kTrain;
  bool with_digest = false;
  bool with_state = false;
  float learning_rate = 0;
  std::uint64_t table_steps = 0;
  TableId table{0};
  StepId step;                   // of a push; `part` means nothing here
  std::vector<RoundPart> parts;  // in rank order; one rank's in the order they came, of a push by part
  std::vector<Ticket> waiters;   // whom to tell how it went

  // Some part has weights: those of the others are all 1.
  bool weighted() const { return std::ranges::any_of(parts, &RoundPart::weighted); }
};

// How a request ended without a round of its own.
struct Answer {
  Ticket ticket;
  Status status;                 // OK: the push was applied before ...
  std::uint64_t table_step = 0;  // ... as this step
};

struct AgendaLimits {
  std::uint64_t max_round_bytes = 0;
  std::uint64_t step_timeout_ms = 0;
};

// Bytes that a batch gathers on a rank: keys, their weights, offsets and one float for each bag's element.
std::uint64_t RoundBytes(std::uint64_t samples, std::uint64_t keys, std::uint64_t slots, std::uint64_t dim,
                         bool weighted);

class Agenda {
 public:
  explicit Agenda(const AgendaLimits& limits) : limits_(limits) {}

  void AddTable(TableId table, std::uint32_t slots, std::uint32_t dim);
  // Its waiting requests are answered NOT_FOUND.
  void DropTable(TableId table);

  // Takes in all ranks' headers, in rank order.
  void Absorb(std::span<const Header> headers);
  // The requests that have been answered since the last call.
  std::vector<Answer> TakeAnswers() { return std::exchange(answers_, {}); }
  // Parts that have come again since the last call: they wait for an answer with the first, whose arrays are used.
  std::vector<Ticket> TakeRepeated() { return std::exchange(repeated_, {}); }

  // The next round, taken off the agenda. Nothing if nothing is ready.
  std::optional<Round> Next();
  // Tells the agenda that a push's round succeeded as the table's step `table_step`.
  void StepApplied(const Round& round, std::uint64_t table_step);

  bool HasReady() const { return !ready_.empty(); }
  bool HasIncompleteSteps() const { return !incomplete_.empty(); }
  // Of the steps that wait for parts, the one whose first part came first.
  std::optional<StepKey> FirstIncompleteStep() const;
  // Some rank takes no new requests: the others should close too.
  bool Closing() const { return closing_; }
  // No rank takes requests, and nothing is left to do.
  bool Finished() const { return drained_ && ready_.empty(); }

 private:
  // Part by part, what has come.
  struct Step {
    std::uint32_t parts = 0;
    std::uint64_t deadline_ms = 0;
    std::uint64_t bytes = 0;
    bool too_large = false;  // nobody waits for it: it is kept to tell the parts that are still to come
    std::map<std::uint32_t, RoundPart> have;
    std::vector<Ticket> waiters;  // of `have`, and of parts that came again
  };
  struct TableState {
    std::uint32_t slots = 1;
    std::uint32_t dim = 1;
    Ledger ledger;
  };

  void AbsorbOne(Rank rank, const Announcement& announcement);
  void AbsorbPush(const Ticket& ticket, const Announcement& announcement, TableState& table);
  void RefuseTooLarge(Step& step, const StepId& id);
  void DropSteps(const Status& why, bool (*doomed)(const Step&, std::uint64_t), std::uint64_t value);
  void GatherLookups(Round& round);
  std::uint64_t BytesOf(TableId table, const RoundPart& part) const;
  void Reply(const Ticket& ticket, Status status, std::uint64_t table_step = 0);

  AgendaLimits limits_;
  std::map<TableId, TableState> tables_;
  std::deque<Round> ready_;
  std::map<StepKey, Step> incomplete_;
  std::vector<Answer> answers_;
  std::vector<Ticket> repeated_;
  std::uint64_t now_ms_ = 0;
  bool closing_ = false;
  bool drained_ = false;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_AGENDA_H_
