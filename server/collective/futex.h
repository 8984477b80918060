// Futexes put a thread to sleep until a word changes. The word may lie in memory that processes share.
//
// Thread-safety: any thread of any process that has the word mapped.
// Errors: none. A wait may end early for any reason, so the waiting thread looks at the word again.
#ifndef SLOTWISE_SERVER_COLLECTIVE_FUTEX_H_
#define SLOTWISE_SERVER_COLLECTIVE_FUTEX_H_

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>

namespace slotwise {

// Sleeps while `word` is `value`, until FutexWakeAll, but no longer than `most`.
inline void FutexWait(std::uint32_t& word, std::uint32_t value, std::chrono::microseconds most) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(most);
  const std::chrono::nanoseconds rest = most - seconds;
  const timespec timeout{.tv_sec = seconds.count(), .tv_nsec = rest.count()};
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &timeout, nullptr, 0);
}

// Wakes every thread that sleeps on `word`.
inline void FutexWakeAll(std::uint32_t& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_COLLECTIVE_FUTEX_H_
