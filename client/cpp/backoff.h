// Computes how long the client waits before it sends a request again, and that time on gRPC's clock.
// Thread-safety: free functions.
#ifndef SLOTWISE_CLIENT_CPP_BACKOFF_H_
#define SLOTWISE_CLIENT_CPP_BACKOFF_H_

#include <grpc/support/time.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <random>

namespace slotwise::client {

// Returns the wait after `attempts` tries (1 or more): a random time, whose range doubles with each try from
// 25 .. 50 ms up to 1 .. 2 s.
inline std::chrono::steady_clock::duration Backoff(std::size_t attempts, std::minstd_rand& random) {
  using Seconds = std::chrono::duration<double>;
  constexpr Seconds kFirst{0.05};
  constexpr Seconds kLongest{2.0};
  const Seconds longest = std::min(kLongest, kFirst * (1 << std::min<std::size_t>(attempts - 1, 16)));
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      longest * std::uniform_real_distribution<double>(0.5, 1.0)(random));
}

// Returns the wait before the next try, after `attempts` tries. If a busy server said when to try again, the
// wait is 1 to 1.5 times that time, at random; else it is Backoff's.
inline std::chrono::steady_clock::duration WaitToRetry(std::chrono::milliseconds retry_after,
                                                       std::size_t attempts, std::minstd_rand& random) {
  if (retry_after.count() == 0) return Backoff(attempts, random);
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      retry_after * std::uniform_real_distribution<double>(1.0, 1.5)(random));
}

// Returns `time`, but at least a millisecond from now, on gRPC's monotonic clock, which is never set.
inline gpr_timespec Until(std::chrono::steady_clock::time_point time) {
  using std::chrono::milliseconds;
  using std::chrono::nanoseconds;
  using std::chrono::steady_clock;
  const auto left = std::max<steady_clock::duration>(milliseconds(1), time - steady_clock::now());
  return gpr_time_add(
      gpr_now(GPR_CLOCK_MONOTONIC),
      gpr_time_from_nanos(std::chrono::duration_cast<nanoseconds>(left).count(), GPR_TIMESPAN));
}

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_BACKOFF_H_
