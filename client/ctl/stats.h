// Runs slotwise-ctl's commands about what a server does: `stats`, one reading of what its ranks have counted,
// and `top`, what they have done in each interval.
// Thread-safety: free functions, for one thread.
#ifndef SLOTWISE_CLIENT_CTL_STATS_H_
#define SLOTWISE_CLIENT_CTL_STATS_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <ostream>
#include <span>

#include "client/ctl/commands.h"
#include "slotwise/client.h"
#include "slotwise/server_stats.h"

namespace slotwise::ctl {

// A stage, and its share of the time that calls took.
struct SlowestStage {
  CallStage stage = CallStage::kDecode;
  double share = 0;  // 0 .. 1
};
// Returns the stage in which calls spent the most time; nothing if no time was counted.
std::optional<SlowestStage> FindSlowestStage(const CallStats& calls);

// Shows what ranks have counted from one reading, `before`, to the next, `now`, in rank order; ranks that
// were started again between them, or are not in `before`, all that they have counted.
Answer ShowInterval(std::span<const RankStats> before, std::span<const RankStats> now);

Result<Answer> ShowStats(Client& client);

struct TopFlags {
  double interval = 2;      // seconds
  std::uint64_t count = 0;  // intervals to show; 0: until the program is ended
};
// Writes what the ranks do in each interval to `out`: as text, with `clears` in the place of the interval
// before; or with `json`, an object a line. An interval without an answer says why, and `top` goes on; but
// the first answer has to come. `patience`: the longest wait for an answer.
Result<Answer> Top(Client& client, const TopFlags& flags, bool json, bool clears,
                   std::chrono::milliseconds patience, std::ostream& out);

}  // namespace slotwise::ctl

#endif  // SLOTWISE_CLIENT_CTL_STATS_H_
