#include "server/engine/idle_wait.h"

#include <algorithm>

#include "server/collective/bell.h"

namespace slotwise {

std::chrono::microseconds IdleWait::Pause(Clock::TimePoint::duration waited) const {
  if (collective_.bell() != nullptr) return kByBell;
  if (collective_.size() == 1) return kAlone;
  return waited < kRecently ? kFirstPause : waited < kLongAgo ? kLastPause : kLongPause;
}

void IdleWait::Await(const Beside& beside) {
  ++waits_;
  const Clock::TimePoint begin = clock_.Now();
  Bell* const bell = collective_.bell();
  for (;;) {
    // Reads the bell first, so that a ring after any of the checks below ends this turn's wait.
    const std::uint32_t rung = bell == nullptr ? 0 : bell->rung();
    const Clock::TimePoint::duration waited = clock_.Now() - begin;
    std::chrono::microseconds pause = Pause(waited);
    if (const auto soon = beside.advance()) pause = std::min(pause, *soon);
    if (beside.due) {
      const auto left = std::chrono::ceil<std::chrono::microseconds>(*beside.due - waited);
      pause = std::clamp(left, std::chrono::microseconds(0),
                         std::min<std::chrono::microseconds>(pause, kTellEvery));
      beside.tell();
    }
    const bool is_due = beside.due && waited >= *beside.due;
    const auto at_request_queue = bell == nullptr ? pause : std::chrono::microseconds(0);
    if (request_queue_.AwaitNews(at_request_queue) || is_due) return collective_.Wake(waits_);
    if (collective_.PollWake(waits_)) return;
    if (bell != nullptr) bell->Await(rung, pause);
  }
}

}  // namespace slotwise
