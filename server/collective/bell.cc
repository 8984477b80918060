#include "server/collective/bell.h"

#include "server/collective/futex.h"

namespace slotwise {

void Bell::Ring() {
  Rung().fetch_add(1);
  if (Waits().load() != 0) FutexWakeAll(words_->rung);
}

void Bell::Await(std::uint32_t seen, std::chrono::microseconds most) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + most;
  Waits().store(1);
  while (Rung().load() == seen) {
    const auto left = std::chrono::duration_cast<std::chrono::microseconds>(end - Clock::now());
    if (left <= std::chrono::microseconds(0)) break;
    FutexWait(words_->rung, seen, left);
  }
  Waits().store(0);
}

}  // namespace slotwise
