// Runs slotwise-ctl's commands about a server's work: `stats` shows one reading of the ranks' counters, `top`
// shows their work in each interval.
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

// Shows what each rank counted between the readings `before` and `now`, in rank order. For a rank that is not
// in `before`, or has restarted since, shows all that it has counted.
Answer ShowInterval(std::span<const RankStats> before, std::span<const RankStats> now);

Result<Answer> ShowStats(Client& client);

struct TopFlags {
  double interval = 2;      // seconds
  std::uint64_t count = 0;  // intervals to show; 0: until the program is ended
};
// Writes the work of the ranks in each interval to `out`. As text, `clears` overwrites the interval before;
// with `json`, each interval is one line. If an interval gets no answer, `top` shows why and goes on; without
// a first answer it ends. `patience`: the longest wait for an answer.
Result<Answer> Top(Client& client, const TopFlags& flags, bool json, bool clears,
                   std::chrono::milliseconds patience, std::ostream& out);

}  // namespace slotwise::ctl

#endif  // SLOTWISE_CLIENT_CTL_STATS_H_
