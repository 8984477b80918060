// RoundRunner: runs rounds, each as its operation says. Every rank runs the same ones.
// Thread-safety: the engine's thread only. The constructor and Run are collective.
#ifndef SLOTWISE_SERVER_ENGINE_OPERATIONS_ROUND_RUNNER_H_
#define SLOTWISE_SERVER_ENGINE_OPERATIONS_ROUND_RUNNER_H_

#include <utility>
#include <vector>

#include "server/engine/operations/definition.h"
#include "server/engine/operations/round_context.h"
#include "server/engine/schedule/round.h"

namespace slotwise {

class RoundRunner {
 public:
  // `operations` outlives it; the others are RoundContext's.
  template <class... Arguments>
  explicit RoundRunner(const OperationTable& operations, Arguments&&... arguments)
      : operations_(operations), context_(std::forward<Arguments>(arguments)...) {}

  // Runs the round's operation; `carried` may have batches of it. It may leave work to the device, and
  // answers to a later call of Run, of the stages or of the log.
  void Run(const Round& round, const CarriedBatches& carried = {});

  // Returns the tables that the last round has replaced by a checkpoint's, once.
  std::vector<TableId> TakeReplacedTables() { return std::exchange(context_.replaced, {}); }

  // From now on each round says its outcome there, which outlives this.
  void SayOutcomes(RoundOutcome& outcome) { context_.round_outcome = &outcome; }

  // Returns the stages of the rounds that Run left to the device.
  Stages& stages() { return context_.stages; }

 private:
  // Says which tables' shards are about to work, so that others give memory back.
  void UseScratch(const Round& round);
  // Tells the round's tables' counters what it was, and what they are now.
  void CountRound(const Round& round);

  const OperationTable& operations_;
  RoundContext context_;
  std::vector<ScratchBudget::Batch> scratch_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_OPERATIONS_ROUND_RUNNER_H_
