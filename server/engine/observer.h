// EngineObserver: hears of an engine's requests and decisions, so that a simulator can compare the ranks.
//
// Thread-safety: an observer is called on its engine's thread.
#ifndef SLOTWISE_SERVER_ENGINE_OBSERVER_H_
#define SLOTWISE_SERVER_ENGINE_OBSERVER_H_

#include <cstdint>

#include "server/engine/schedule/request.h"

namespace slotwise {

struct Decision;
struct RoundOutcome;

// An engine's state after a decision of its scheduler, before the decision's round.
struct EngineState {
  std::uint64_t decisions = 0;    // decisions made so far, this one included: equal on every rank
  std::uint64_t round = 0;        // the number of the last round that was decided: equal on every rank
  std::uint64_t fingerprint = 0;  // RoundScheduler::HashState: equal on every rank
  std::uint64_t queue_bytes = 0;  // bytes charged to this rank's request queue
};

class EngineObserver {
 public:
  virtual ~EngineObserver() = default;
  EngineObserver(const EngineObserver&) = delete;
  EngineObserver& operator=(const EngineObserver&) = delete;

  // The request was taken out of the request queue, and has this ticket from now on.
  virtual void OnTaken(const Request& request, TicketNumber ticket) = 0;
  virtual void OnDecision(const EngineState& state, const Decision& decision) = 0;
  // Returns whether OnOutcome is to be called after each round; asked once. Outcomes make rounds slower.
  virtual bool wants_outcomes() const { return false; }
  virtual void OnOutcome(std::uint64_t /*round*/, const RoundOutcome& /*outcome*/) {}

 protected:
  EngineObserver() = default;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_OBSERVER_H_
