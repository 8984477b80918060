// Sets the limits that depend on the memory, and checks that configured limits fit into it.
// Thread-safety: free functions.
#ifndef SLOTWISE_SERVER_OPS_FIT_LIMITS_H_
#define SLOTWISE_SERVER_OPS_FIT_LIMITS_H_

#include <cstdint>
#include <string>

#include "slotwise/memory_plan.h"
#include "slotwise/status.h"
#include "slotwise/v1/config.pb.h"

namespace slotwise {

// A rank's even share, in bytes, of its device's memory and of its host's.
struct MemoryShare {
  std::uint64_t device = 0;
  std::uint64_t host = 0;
  bool gpu = false;
  bool several_ranks = false;  // the server has several ranks
};

// Sets the limits of `config` that depend on the memory and are not configured (slotwise/memory_plan.h). All
// ranks must pass the same `memory`. FAILED_PRECONDITION, in one sentence with the configured limits, the
// memory that they take and the memory that there is: no server can work within them.
Result<sizing::MemoryPlan> FitLimits(const MemoryShare& memory, v1::ServerConfig& config);

// Returns the set-aside memory for the log: "process 68, requests and replies 94, ... MiB".
std::string TextOf(const sizing::SetAside& aside);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_OPS_FIT_LIMITS_H_
