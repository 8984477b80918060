// Referee: computes the required decision of the schedulers and the required end of every request, and
// compares.
//
// The referee takes in the headers that the ranks gathered. In plain code that shares nothing with the
// scheduler it tracks which requests wait for a round and which for parts, and it replays the decided rounds,
// in order, on model tables. Thread-safety: the scheduler's thread.
#ifndef SLOTWISE_TESTS_SIM_REFEREE_H_
#define SLOTWISE_TESTS_SIM_REFEREE_H_

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "server/engine/observer.h"
#include "server/engine/schedule/round_scheduler.h"
#include "tests/sim/journal.h"
#include "tests/sim/model_names.h"
#include "tests/sim/model_table.h"
#include "tests/sim/plan.h"
#include "tests/sim/scheduler.h"

namespace slotwise::sim {

class Referee {
 public:
  Referee(const Plan& plan, Scheduler& scheduler, Journal& journal);

  // All ranks' headers for the next decision, as the rank leaves their AllGather.
  void OnHeaders(int rank, std::span<const Header> headers);
  void OnTaken(int rank, const Request& request, TicketNumber ticket);
  void OnDecision(int rank, const EngineState& state, const Decision& decision);

  // A client has a lookup's answer (OnHeld), and frees it later. Answers of one round may share their end.
  void OnHeld(const Sent& lookup);
  void OnLetGo(const Sent& lookup);

  // A client submitted `group` to a rank's engine together. `refused[i]` is the immediate refusal of request
  // i, if there was one. `stopping`: the rank was asked to stop before.
  void OnSubmit(int rank, std::span<Sent* const> group, std::span<const std::optional<Status>> refused,
                bool stopping);
  // An engine answered a request.
  void OnAnswer(Sent& sent, const Reply& reply);

  // A client has the answer to a call whose messages are these requests. `refused` is as in OnSubmit.
  // `reads_values`: `replies` has the lookups' values.
  void OnCallAnswer(std::span<Sent* const> call, std::span<const std::optional<Status>> refused,
                    const Status& status, std::span<const Reply> replies, bool reads_values);
  // The call's connection has ended: no client hears of the call, and its queued requests are never proposed.
  void OnCallLost(std::span<Sent* const> call);
  // The server has released everything of the call.
  void OnCallGone(std::span<Sent* const> call);
  // Returns whether the request is too large for a round.
  bool IsTooLarge(const Ask& ask, const TableOptions& options) const {
    return GatheredBytes(ask, options) > plan_.engine.max_round_bytes;
  }

  // Returns whether the rank has no memory for its current round.
  bool IsShort(int rank) const;

  // All engines have ended normally.
  void OnEnd();

  const std::map<TableId, ModelTable>& tables() const { return tables_; }
  std::uint64_t rounds() const { return rounds_; }
  // Returns the number of accepted requests without an answer.
  std::uint64_t open() const { return open_; }

 private:
  // The key is the place and the part.
  using Parts = std::map<std::pair<std::uint32_t, std::uint32_t>, Sent*>;
  struct Step {
    std::uint32_t tables_count = 1;
    std::uint32_t parts = 0;
    std::uint64_t deadline_ms = 0;
    std::uint64_t arrival = 0;
    std::uint64_t bytes = 0;
    std::uint64_t epoch = 0;
    bool too_large = false;
    std::map<std::uint32_t, TableId> tables = {};  // by place
    Parts have = {};
    std::vector<Sent*> waiters = {};
  };
  struct Ready {
    Sent* first = nullptr;
    std::optional<StepKey> step = {};  // the complete step, if it is one
    Parts parts = {};
    std::vector<Sent*> waiters = {};
  };
  // The first rank's decision, with which the others' must agree.
  struct Decided {
    std::uint64_t fingerprint = 0;
    std::uint64_t content = 0;
    std::optional<StepKey> awaited = {};
    bool closing = false;
    bool batch_round = false;       // the round keeps arrays until the device is done
    std::uint64_t short_ranks = 0;  // a bit for each rank that has no memory for its round
  };

  void Judge(const Decision& decision);  // the first rank's
  void NoteWaitingParts(const std::vector<Header>& headers);
  void TakeIn(Sent& sent);
  void TakeInPart(Sent& sent, ModelTable& table);
  void Drop(bool (*doomed)(const Step&, std::uint64_t), std::uint64_t value, StatusCode code);
  void CheckAnswers(const Decision& decision);
  void CheckRound(const Round& round);
  void CheckSweep(const std::optional<Round>& round, TableId due, ModelTable& table);
  void DrawShortRanks();
  void CheckParts(const Round& share);
  void CheckStep(const Round& round, const Ready& front);
  std::vector<Sent*> TakeWaiters(const Round& round);
  std::vector<Sent*> TakeLookups(const Round& share, bool may_be_more);
  static bool ShareARound(const Ask& one, const Ask& other);
  void CheckPromises(const Decision& decision, bool drained);

  void Run(const Round& round, const std::vector<Sent*>& waiters);  // referee_rounds.cc
  void RunLookup(const std::vector<Sent*>& parts, ModelTable& table);
  void RunPush(const Round& round);
  void RunCreate(Sent& sent);
  void RunAlter(Sent& sent, ModelTable& table);
  void RunDrop(TableId table, Sent& sent);
  void RunRows(Sent& sent, ModelTable& table);
  void RunRemove(Sent& sent, ModelTable& table);
  Expected Summary(const ModelTable& table, const Ask& ask) const;
  void CompareReplies(const Sent& sent, const Reply& reply);
  // Checks that a table keeps its generation and that no other table has it.
  void CheckGeneration(const Sent& sent, std::uint64_t generation);
  std::uint64_t GatheredBytes(const Ask& ask) const;
  std::uint64_t GatheredBytes(const Ask& ask, const TableOptions& options) const;

  void Expect(Sent& sent, StatusCode code) { Expect(sent, Expected{code, {}, {}}); }
  void Expect(Sent& sent, Expected expected);
  // Records that no client hears how the request ends.
  void Unhear(Sent& sent);
  // Bytes of the rank's requests that must, or may, be charged after its first `decisions` decisions.
  struct Charged {
    std::uint64_t parts = 0;  // parts that wait for others' parts
    std::uint64_t others = 0;
    std::uint64_t all() const { return parts + others; }
    void Add(const Sent& sent, std::uint64_t bytes, std::uint64_t decisions);
  };
  Charged ChargedAtLeast(int rank, std::uint64_t decisions) const;  // referee_room.cc
  Charged ChargedAtMost(int rank, std::uint64_t decisions, std::size_t rounds_kept) const;
  // Returns the most that a message of several requests is charged: a request queue, and its allowed excess.
  std::uint64_t MostOfAMessage() const;
  static std::pair<bool, bool> StepsIn(std::span<Sent* const> group);
  void CheckRefusal(const Sent& sent, const Status& status);
  void CheckRoom(int rank, std::span<Sent* const> group, bool accepted, bool stopping);
  Sent* Find(const Ticket& ticket);
  void Fail(const std::string& what) { scheduler_.Fail(what); }

  const Plan& plan_;
  Scheduler& scheduler_;
  Journal& journal_;
  std::map<TableId, ModelTable> tables_;
  ModelNames names_;
  std::map<std::uint64_t, TableId> generations_;  // as the answers said
  std::uint32_t next_table_ = 1;
  std::set<TableId> gone_;                    // dropped tables whose drop was answered
  std::vector<std::vector<Header>> headers_;  // by decision, from 1
  std::vector<std::size_t> gathered_;         // [ranks] how many of them the rank has gathered
  std::vector<std::uint64_t> decisions_;      // [ranks] how many the rank has made
  std::vector<TicketNumber> announced_;       // [ranks] the last proposed ticket
  std::vector<std::multiset<std::uint64_t>>
      held_;                                // [ranks] when the lookups were released whose answers are held
  std::vector<std::size_t> first_charged_;  // [ranks] the first request that may still be charged
  std::vector<Decided> decided_;            // by decision, from 1
  std::list<Ready> ready_;                  // in the order of rounds
  std::map<StepKey, Step> incomplete_;
  std::vector<Sent*> ended_;     // in this decision, without a round
  std::vector<Sent*> repeated_;  // in this decision
  std::uint64_t now_ms_ = 0;
  std::uint64_t arrivals_ = 0;
  std::uint64_t rounds_ = 0;
  std::uint64_t open_ = 0;
  bool closing_ = false;
  Random random_;
};

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_REFEREE_H_
