// The audit log says who changed what a server has: log lines about tables, rows and checkpoints.
//
// A caller may ask for as much as it likes, so lines have a bound, each principal its own: no deeds of one
// hide another's. Lines that were held back are counted in the principal's next one of that kind, or, where
// none follows, in a line of their own once the interval is over.
// Thread-safety: safe from any thread.
#ifndef SLOTWISE_SERVER_INTAKE_AUDIT_LOG_H_
#define SLOTWISE_SERVER_INTAKE_AUDIT_LOG_H_

#include <chrono>
#include <cstdint>
#include <string_view>
#include <thread>

#include "server/engine/caller.h"

namespace slotwise {

// What a deed does. Each kind has its own bound, so that many small deeds hide none that takes something
// away.
enum class Deed : std::uint8_t {
  kMakes,       // tables, rows, checkpoints
  kTakesAway,   // drops tables, erases rows, goes back to a checkpoint
  kTakesAlong,  // exports rows
  kSets         // learning rates, and which checkpoints are kept
};

// So many lines of a principal, or of all callers of a server without principals, in so long.
inline constexpr std::uint32_t kAuditLines = 32;
inline constexpr std::chrono::seconds kAuditInterval{10};

// Logs "`deed`, as CALLER asked". `deed` is a sentence's beginning, such as "table ads is made".
void LogDeed(Deed kind, std::string_view deed, const Caller& caller);

// Logs how many lines were held back, of each principal and kind whose interval is over at `now` and whom no
// line has told of them.
void LogHeldBackDeeds(std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now());

// Calls LogHeldBackDeeds in every interval, by a thread of its own, and as it ends, then for all intervals.
class HeldBackDeeds {
 public:
  HeldBackDeeds();
  ~HeldBackDeeds();
  HeldBackDeeds(const HeldBackDeeds&) = delete;
  HeldBackDeeds& operator=(const HeldBackDeeds&) = delete;

 private:
  std::jthread thread_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_INTAKE_AUDIT_LOG_H_
