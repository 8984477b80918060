// Refusals: counts, over all ranks, why ranks refuse a collective task, so that a rank that does not refuse
// can name another rank's reason.
// Thread-safety: plain values and free functions.
#ifndef SLOTWISE_SERVER_ENGINE_REFUSALS_H_
#define SLOTWISE_SERVER_ENGINE_REFUSALS_H_

#include <cstdint>
#include <string>
#include <utility>

#include "server/durability/journal.h"
#include "slotwise/status.h"

namespace slotwise {

struct Refusals {
  std::uint64_t all = 0;   // ranks that refuse
  std::uint64_t slow = 0;  // of these, ranks whose journal waits for its disk
  std::uint64_t full = 0;  // of these, ranks whose journal's disk is full

  static Refusals Of(const Status& mine) {
    const bool slow = mine.code() == StatusCode::kUnavailable;
    const bool full = mine.code() == StatusCode::kResourceExhausted && mine.retry_after().count() > 0;
    return {mine.ok() ? 0U : 1U, slow ? 1U : 0U, full ? 1U : 0U};
  }
};
static_assert(sizeof(Refusals) == 3 * sizeof(std::uint64_t), "refusals are added up as an array");

// Returns the error of a rank that does not refuse itself. Its message is `otherwise`, unless all refusals
// are due to journals' disks. REQUIRES: some rank refuses.
inline Status OnAnotherRank(const Refusals& refusals, std::string otherwise) {
  if (refusals.slow == refusals.all)
    return Unavailable("another rank's journal is slower than what is pushed: try again")
        .Because(Reason::kJournalBehind);
  if (refusals.slow + refusals.full == refusals.all)
    return ResourceExhausted("another rank has no space for its journal", kRetryOnFullDisk)
        .Because(Reason::kDiskFull);
  return ResourceExhausted(std::move(otherwise)).Because(Reason::kNoMemory);
}

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_REFUSALS_H_
