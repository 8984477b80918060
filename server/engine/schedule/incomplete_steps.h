// IncompleteSteps: the steps that still lack parts, found by name and ordered by deadline.
//
// Every call takes time in proportion to the steps that it returns and the logarithm of the number that wait.
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_SERVER_ENGINE_SCHEDULE_INCOMPLETE_STEPS_H_
#define SLOTWISE_SERVER_ENGINE_SCHEDULE_INCOMPLETE_STEPS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "server/engine/schedule/fingerprint.h"
#include "server/engine/schedule/round.h"

namespace slotwise {

struct IncompleteStep {
  // The received parts of one of the step's tables.
  struct Share {
    TableId table{0};
    std::optional<float> learning_rate = {};        // of `have`
    std::vector<RoundPart> have;                    // in the order in which they came
    std::map<std::uint32_t, std::uint32_t> bodies;  // of `have`, by part number
    std::vector<Ticket> waiters;                    // the requests of `have`, and of repeated parts
  };

  Operation operation{};
  std::uint32_t tables = 1;
  std::uint32_t parts = 0;  // expected of each table
  std::uint64_t deadline_ms = 0;
  std::uint64_t arrival = 0;  // numbers the steps by their first parts
  std::uint64_t bytes = 0;    // gathered by the received parts
  bool too_large = false;     // its parts were refused; the step stays, so that later parts are refused too
  std::uint64_t epoch = 0;    // the latest epoch of its parts
  std::uint64_t came = 0;     // received parts of all tables
  std::map<std::uint32_t, Share> shares;    // by place
  std::map<TableId, std::uint32_t> places;  // places of the tables in `shares`

  bool complete() const { return came == std::uint64_t{tables} * parts; }
};

class IncompleteSteps {
 public:
  bool empty() const { return steps_.empty(); }
  std::size_t size() const { return steps_.size(); }
  bool Has(const StepKey& key) const { return steps_.contains(key); }

  // Returns the step, or null if no such step waits. References stay valid until the step is taken.
  IncompleteStep* Find(const StepKey& key);
  // Adds a step. REQUIRES: no such step waits; no waiting step has a later deadline.
  IncompleteStep& Add(const StepKey& key, std::uint32_t parts, std::uint64_t deadline_ms,
                      std::uint32_t tables = 1);
  // Returns the share of a table in a waiting step; null if the step has another table at that place, or that
  // table at another place.
  IncompleteStep::Share* ShareOf(const StepKey& key, IncompleteStep& step, std::uint32_t place,
                                 TableId table);
  // Marks a step as too large, so that First ignores it. REQUIRES: the step waits.
  void MarkTooLarge(const StepKey& key);

  // Returns the step whose first part came first, among the steps that are not too large.
  std::optional<StepKey> First() const;

  // Returns the earliest deadline. REQUIRES: a step waits.
  std::uint64_t FirstDeadline() const;

  // REQUIRES: the step waits.
  IncompleteStep Take(StepKey key);
  // Remove and return steps, in the order of their first parts.
  std::vector<IncompleteStep> TakeDue(std::uint64_t now_ms);
  std::vector<IncompleteStep> TakeAll();
  // Removes and returns steps in the order of their names; steps of several tables come last.
  std::vector<IncompleteStep> TakeAllOf(TableId table);

  // Calls f(key, step) for each step that waits.
  template <class F>
  void ForEach(const F& f) const {
    for (const auto& [key, step] : steps_) f(key, step);
  }

  // Adds the steps' state.
  void AddTo(Fingerprint& fingerprint) const;

 private:
  std::map<StepKey, IncompleteStep> steps_;
  std::map<TableId, std::set<StepKey>> several_;  // by table: its steps of several tables
  // By arrival, which is also the order of deadlines: all steps, and the steps that are not too large.
  std::map<std::uint64_t, StepKey> by_arrival_;
  std::map<std::uint64_t, StepKey> awaited_;
  std::uint64_t next_arrival_ = 0;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_SCHEDULE_INCOMPLETE_STEPS_H_
