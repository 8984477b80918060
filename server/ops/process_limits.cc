#include "server/ops/process_limits.h"

#include <string>

namespace slotwise {

ProcessLimits ProcessLimits::Mine() {
  ProcessLimits mine;
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0) mine.address_bytes = limit.rlim_cur;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) mine.files = limit.rlim_max;
  return mine;
}

Status ProcessLimits::Check() const {
  if (address_bytes < kLeastAddressesMib << 20) {
    return FailedPrecondition("this process may have " + std::to_string(address_bytes >> 10) +
                              " KiB of address space (RLIMIT_AS, ulimit -v), and a server needs at least " +
                              std::to_string(kLeastAddressesMib << 10));
  }
  if (files < kLeastFiles) {
    return FailedPrecondition("this process may open " + std::to_string(files) +
                              " files (RLIMIT_NOFILE, ulimit -n), and a server needs at least " +
                              std::to_string(kLeastFiles));
  }
  return {};
}

}  // namespace slotwise
