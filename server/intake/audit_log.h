// The audit log records who changed a server's tables, rows and checkpoints.
//
// A caller may send any number of requests, so the lines are bounded. Each principal has its own bound, so
// that the deeds of one hide no deed of another. The principal's next line of a kind says how many lines of
// that kind were held back; if none follows, a separate line says it once the interval is over.
// Thread-safety: safe from any thread.
#ifndef SLOTWISE_SERVER_INTAKE_AUDIT_LOG_H_
#define SLOTWISE_SERVER_INTAKE_AUDIT_LOG_H_

#include <chrono>
#include <cstdint>
#include <string_view>
#include <thread>

#include "server/engine/caller.h"

namespace slotwise {

// The kind of a deed. Each kind has its own bound, so that many small deeds hide none that removes something.
enum class Deed : std::uint8_t {
  kMakes,       // tables, rows, checkpoints
  kTakesAway,   // drops tables, erases rows, loads a checkpoint
  kTakesAlong,  // exports rows
  kSets         // learning rates, and which checkpoints are kept
};

// Bounds the lines of a kind per interval, of a principal or of all callers of a server without principals.
inline constexpr std::uint32_t kAuditLines = 32;
inline constexpr std::chrono::seconds kAuditInterval{10};

// Logs "`deed`, as CALLER asked". `deed` begins a sentence, such as "table ads is made".
void LogDeed(Deed kind, std::string_view deed, const Caller& caller);

// Logs how many lines were held back, for each principal and kind whose interval is over at `now`, unless a
// line has said so already.
void LogHeldBackDeeds(std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now());

// Calls LogHeldBackDeeds once an interval on its own thread; the destructor calls it for all intervals.
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
