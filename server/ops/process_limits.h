// ProcessLimits: what the system lets this process have, and whether a server can live on it.
// Thread-safety: safe from any thread.
#ifndef SLOTWISE_SERVER_OPS_PROCESS_LIMITS_H_
#define SLOTWISE_SERVER_OPS_PROCESS_LIMITS_H_

#include <sys/resource.h>

#include "slotwise/status.h"

namespace slotwise {

struct ProcessLimits {
  // Threads' stacks, their heaps and the libraries take gigabytes of addresses, and little memory.
  static constexpr rlim_t kLeastAddressesMib = 4096;
  static constexpr rlim_t kLeastFiles = 64;
  // Of a rank's own and its libraries', beside those for each processor, of up to so many.
  static constexpr rlim_t kLeastThreads = 48;
  static constexpr rlim_t kThreadsOfProcessor = 2;
  static constexpr rlim_t kMostProcessors = 32;

  rlim_t address_bytes = RLIM_INFINITY;
  rlim_t files = RLIM_INFINITY;    // that it may open if it asks for as many as it may have
  rlim_t threads = RLIM_INFINITY;  // that it may begin, if those are fewer than it needs
  rlim_t needs_threads = kLeastThreads;

  // Returns this process's. Begins as many threads as a server needs, and ends them: neither RLIMIT_NPROC nor
  // a container's limit of pids says how many are left.
  static ProcessLimits Mine();

  // FAILED_PRECONDITION, in one sentence that names the limit and what is needed, if a server cannot start.
  Status Check() const;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_OPS_PROCESS_LIMITS_H_
