// SampledTimes measures how long some of a stream's operations took, by the device's own clock, without a
// wait.
//
// Marks in the stream stand at the beginning and the end of an operation, and the time between them is read
// when later operations begin. A mark costs the host a microsecond or two, so one operation in kDistance is
// timed, on average: at random distances, because rounds repeat the same few operations, and a fixed distance
// might always meet the same one. The distances are the same on every rank, and so are the operations that
// are timed.
// Thread-safety: one thread at a time. Errors: those of Marks.
#ifndef SLOTWISE_SERVER_COLLECTIVE_SAMPLED_TIMES_H_
#define SLOTWISE_SERVER_COLLECTIVE_SAMPLED_TIMES_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>

#include "server/counters/duration_counter.h"

namespace slotwise {

// Marks are two places in a stream: Begin() and End() set them behind the work enqueued so far, and Took()
// returns the time between them, or nothing as long as the stream has not reached the second.
template <class Marks>
class SampledTimes {
 public:
  static constexpr std::uint32_t kDistance = 16;
  // The most timed operations that have not ended; while there are as many, no more are timed.
  static constexpr std::size_t kMarks = 16;

  // Makes each of the marks with `arguments`.
  template <class... Arguments>
  explicit SampledTimes(const Arguments&... arguments) {
    for (std::optional<Marks>& marks : marks_) marks.emplace(arguments...);
  }

  // REQUIRES: an operation is about to be enqueued. Counts the timed ones that have ended. The first
  // operations of all, by which ranks connect, are not timed.
  void Begin(DurationCounter& counter) {
    CountEnded();
    if (--left_ > 0) return;
    left_ = 1 + static_cast<std::uint32_t>(random_() % (2 * kDistance - 1));
    if (begun_ - ended_ == kMarks) return;
    counters_[begun_ % kMarks] = &counter;
    marks_[begun_ % kMarks]->Begin();
    is_timed_ = true;
  }
  // REQUIRES: the operation was enqueued.
  void End() {
    if (!is_timed_) return;
    is_timed_ = false;
    marks_[begun_++ % kMarks]->End();
  }

 private:
  void CountEnded() {
    for (; ended_ < begun_; ++ended_) {
      const std::optional<std::chrono::nanoseconds> took = marks_[ended_ % kMarks]->Took();
      if (!took) return;
      counters_[ended_ % kMarks]->Count(*took);
    }
  }

  std::array<std::optional<Marks>, kMarks> marks_;
  std::array<DurationCounter*, kMarks> counters_ = {};  // for the operations that have not ended
  std::uint64_t begun_ = 0;                             // operations that were timed
  std::uint64_t ended_ = 0;                             // timed operations that were counted
  std::uint32_t left_ = kDistance;                      // operations until the next one that is timed
  bool is_timed_ = false;                               // whether the operation being enqueued is timed
  std::minstd_rand random_{20261125};
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_COLLECTIVE_SAMPLED_TIMES_H_
