// ProcessLimits has the system's limits on this process, and checks whether a server can work within them.
// Thread-safety: safe from any thread.
#ifndef SLOTWISE_SERVER_OPS_PROCESS_LIMITS_H_
#define SLOTWISE_SERVER_OPS_PROCESS_LIMITS_H_

#include <sys/resource.h>

#include "slotwise/status.h"

namespace slotwise {

struct ProcessLimits {
  // Threads' stacks, their heaps and the libraries take gigabytes of addresses, but little memory.
  static constexpr rlim_t kLeastAddressesMib = 4096;
  static constexpr rlim_t kLeastFiles = 64;
  // The threads of a rank and its libraries, besides those for each of up to kMostProcessors processors.
  static constexpr rlim_t kLeastThreads = 48;
  static constexpr rlim_t kThreadsOfProcessor = 2;
  static constexpr rlim_t kMostProcessors = 32;

  rlim_t address_bytes = RLIM_INFINITY;
  rlim_t files = RLIM_INFINITY;    // that it may open after raising its soft limit
  rlim_t threads = RLIM_INFINITY;  // that it may start, if fewer than it needs
  rlim_t needs_threads = kLeastThreads;

  // Returns this process's limits. Starts as many threads as a server needs, and ends them: neither
  // RLIMIT_NPROC nor a container's limit of pids says how many are left.
  static ProcessLimits Mine();

  // Returns FAILED_PRECONDITION, in one sentence with the limit and the need, if a server cannot start.
  Status Check() const;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_OPS_PROCESS_LIMITS_H_
