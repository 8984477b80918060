// Expiry: which rows of a table have expired, and when the table is swept.
//
// A row expires when no push has touched it for TableOptions::ttl_steps of the table's steps, or for
// ttl_seconds. A row says the step that touched it last, and no time, so an Expiry remembers when the table
// had which steps. An expired row stays until a sweep.
// Thread-safety: a plain value.
#ifndef SLOTWISE_SERVER_DURABILITY_EXPIRY_H_
#define SLOTWISE_SERVER_DURABILITY_EXPIRY_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "slotwise/table_options.h"

namespace slotwise {

struct Expiry {
  // At a time, in seconds since 1970 by rank 0's clock, the table had taken so many steps.
  struct Mark {
    std::uint64_t seconds = 0;
    std::uint64_t steps = 0;
    friend bool operator==(const Mark&, const Mark&) = default;
  };
  static constexpr std::uint64_t kSweepsATtl = 16;
  static constexpr std::uint64_t kMostSeconds = 253'402'300'799;  // the end of the year 9999
  // An interval is more than a 32nd of the time to live, and marks are an interval apart.
  static constexpr std::size_t kMostMarks = 2 * kSweepsATtl + 2;

  std::uint64_t swept_steps = 0;    // the table's steps at its last sweep; 0 without ttl_steps
  std::vector<Mark> marks;          // ascending in both; empty without ttl_seconds
  std::uint64_t swept_seconds = 0;  // when the last sweep was; 0 after a start, and in no checkpoint

  static std::uint64_t Interval(std::uint64_t ttl) { return std::max<std::uint64_t>(1, ttl / kSweepsATtl); }

  // Return whether a sweep is due.
  bool IsDueBySteps(const TableOptions& options, std::uint64_t steps) const {
    if (options.ttl_steps == 0) return false;
    const std::uint64_t interval = Interval(options.ttl_steps);
    return steps / interval > swept_steps / interval;
  }
  bool IsDueByTime(const TableOptions& options, std::uint64_t seconds) const {
    return options.ttl_seconds > 0 && seconds >= swept_seconds + Interval(options.ttl_seconds);
  }

  // Returns the last step of which rows have expired, if a later push has not touched them. Nothing: none.
  std::optional<std::uint64_t> LastExpired(const TableOptions& options, std::uint64_t steps,
                                           std::uint64_t seconds) const {
    std::optional<std::uint64_t> last;
    if (options.ttl_steps > 0 && steps >= options.ttl_steps) last = steps - options.ttl_steps;
    for (const Mark& mark : marks) {
      if (mark.seconds + options.ttl_seconds <= seconds) last = std::max(last.value_or(0), mark.steps);
    }
    return last;
  }

  // Notes a sweep. Returns whether a checkpoint or a journal has to know of it.
  bool NoteSweep(const TableOptions& options, std::uint64_t steps, std::uint64_t seconds) {
    const Expiry before = *this;
    swept_seconds = std::max(swept_seconds, seconds);
    if (options.ttl_steps > 0) swept_steps = steps;
    if (options.ttl_seconds > 0 && MayMark(steps, seconds, Interval(options.ttl_seconds))) {
      marks.push_back({seconds, steps});
      // The newest mark that is a time to live ago says what older ones said.
      while (marks.size() > 1 && marks[1].seconds + options.ttl_seconds <= seconds)
        marks.erase(marks.begin());
    }
    return *this != before;
  }

  // Compares what a checkpoint has.
  friend bool operator==(const Expiry& one, const Expiry& other) {
    return one.swept_steps == other.swept_steps && one.marks == other.marks;
  }

  // Notes that the table's options are `options` from now on.
  void Alter(const TableOptions& options) {
    if (options.ttl_steps == 0) swept_steps = 0;
    if (options.ttl_seconds == 0) return marks.clear();
    // Marks of a shorter time to live are too many for a longer one. Rows of a mark that goes expire by the
    // next one.
    const std::uint64_t interval = Interval(options.ttl_seconds);
    std::size_t kept = 0;
    for (const Mark& mark : marks) {
      if (kept == 0 || mark.seconds >= marks[kept - 1].seconds + interval) marks[kept++] = mark;
    }
    marks.resize(kept);
  }

 private:
  // A clock that was set back makes no mark until it is behind the last mark again.
  bool MayMark(std::uint64_t steps, std::uint64_t seconds, std::uint64_t interval) const {
    return marks.empty() || (steps > marks.back().steps && seconds >= marks.back().seconds + interval);
  }
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_EXPIRY_H_
