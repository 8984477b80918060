// FitLimits: the limits that follow the memory, and whether those that are set fit into it.
// Thread-safety: free functions.
#ifndef SLOTWISE_SERVER_OPS_FIT_LIMITS_H_
#define SLOTWISE_SERVER_OPS_FIT_LIMITS_H_

#include <cstdint>
#include <string>

#include "slotwise/memory_plan.h"
#include "slotwise/status.h"
#include "slotwise/v1/config.pb.h"

namespace slotwise {

// What a rank can count on: in bytes, its even share of its device's memory, and of its host's.
struct MemoryShare {
  std::uint64_t device = 0;
  std::uint64_t host = 0;
  bool gpu = false;
  bool several_ranks = false;  // the server has
};

// Sets the limits of `config` that follow the memory and are not set (slotwise/memory_plan.h). All ranks have
// to pass the same `memory`. FAILED_PRECONDITION, in one sentence that names the limits that are set, what
// they take and what there is, if no server can live with them there.
Result<sizing::MemoryPlan> FitLimits(const MemoryShare& memory, v1::ServerConfig& config);

// Returns what is set aside, for the log: "process 68, requests and replies 94, ... MiB".
std::string TextOf(const sizing::SetAside& aside);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_OPS_FIT_LIMITS_H_
