// IncompleteSteps: the steps of which parts are still missing, found by name and ordered by deadline.
//
// Every call costs time by the steps that it returns, and by the logarithm of how many wait.
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
  // What came of one of the step's tables.
  struct Share {
    TableId table{0};
    std::optional<float> learning_rate = {};        // of `have`
    std::vector<RoundPart> have;                    // in the order in which they came
    std::map<std::uint32_t, std::uint32_t> bodies;  // of `have`, by part number
    std::vector<Ticket> waiters;  // the requests of `have`, and those whose parts came again
  };

  Operation operation{};
  std::uint32_t tables = 1;
  std::uint32_t parts = 0;  // of each table
  std::uint64_t deadline_ms = 0;
  std::uint64_t arrival = 0;  // counts steps by their first parts
  std::uint64_t bytes = 0;    // what the parts that came would gather
  bool too_large =
      false;  // its parts were refused; the step stays so that parts still to come are refused too
  std::uint64_t epoch = 0;                  // the latest of the parts'
  std::uint64_t came = 0;                   // parts, of all tables
  std::map<std::uint32_t, Share> shares;    // by place
  std::map<TableId, std::uint32_t> places;  // of the tables in `shares`

  bool complete() const { return came == std::uint64_t{tables} * parts; }
};

class IncompleteSteps {
 public:
  bool empty() const { return steps_.empty(); }
  std::size_t size() const { return steps_.size(); }
  bool Has(const StepKey& key) const { return steps_.contains(key); }

  // Returns null if no such step waits. References stay valid until the step is taken.
  IncompleteStep* Find(const StepKey& key);
  // REQUIRES: no such step waits; the deadline is no earlier than that of any step that waits.
  IncompleteStep& Add(const StepKey& key, std::uint32_t parts, std::uint64_t deadline_ms,
                      std::uint32_t tables = 1);
  // Returns what came of a table of a step that waits; null if the step has another table at that place, or
  // that table at another place.
  IncompleteStep::Share* ShareOf(const StepKey& key, IncompleteStep& step, std::uint32_t place,
                                 TableId table);
  // REQUIRES: the step waits. Its parts are not waited for from now on.
  void MarkTooLarge(const StepKey& key);

  // Returns the step whose first part came first, of those that are not too large.
  std::optional<StepKey> First() const;

  // Returns the first deadline of a step. REQUIRES: there is one.
  std::uint64_t FirstDeadline() const;

  // REQUIRES: the step waits.
  IncompleteStep Take(StepKey key);
  // Each takes off the steps that it returns, those of earlier first parts first.
  std::vector<IncompleteStep> TakeDue(std::uint64_t now_ms);
  std::vector<IncompleteStep> TakeAll();
  // In the order of their names; those of several tables come last.
  std::vector<IncompleteStep> TakeAllOf(TableId table);

  // Calls f(key, step) for each step that waits.
  template <class F>
  void ForEach(const F& f) const {
    for (const auto& [key, step] : steps_) f(key, step);
  }

  // Adds what the steps are.
  void AddTo(Fingerprint& fingerprint) const;

 private:
  std::map<StepKey, IncompleteStep> steps_;
  std::map<TableId, std::set<StepKey>> several_;  // the steps of several tables that the table is one of
  // By arrival, which is the order of deadlines too: all steps, and those that are not too large.
  std::map<std::uint64_t, StepKey> by_arrival_;
  std::map<std::uint64_t, StepKey> awaited_;
  std::uint64_t next_arrival_ = 0;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_SCHEDULE_INCOMPLETE_STEPS_H_
