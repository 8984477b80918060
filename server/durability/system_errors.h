// Maps the system's errors about files to Status. Thread-safety: free functions.
#ifndef SLOTWISE_SERVER_DURABILITY_SYSTEM_ERRORS_H_
#define SLOTWISE_SERVER_DURABILITY_SYSTEM_ERRORS_H_

#include <cerrno>
#include <string>

#include "slotwise/status.h"

namespace slotwise {

// Returns the Status "cannot OPERATION PATH: ..." for an errno.
Status SystemFailure(const char* operation, const std::string& path, int error);

// Returns whether an error of sync_file_range only says that the file system cannot write back early. A later
// sync then does all the work.
inline bool SyncsAtTheEnd(int error) { return error == ENOSYS || error == EOPNOTSUPP || error == EINVAL; }

// Repeats `call` as long as a signal interrupts it.
template <class Call>
auto Uninterrupted(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_SYSTEM_ERRORS_H_
