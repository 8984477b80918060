// This header says what the system's errors about files mean. Thread-safety: free functions.
#ifndef SLOTWISE_SERVER_DURABILITY_SYSTEM_ERRORS_H_
#define SLOTWISE_SERVER_DURABILITY_SYSTEM_ERRORS_H_

#include <cerrno>
#include <string>

#include "slotwise/status.h"

namespace slotwise {

// Returns "cannot OPERATION PATH: ..." with the code for `error`, an errno.
Status SystemFailure(const char* operation, const std::string& path, int error);

// Returns whether an error of sync_file_range says that the file system cannot begin early: it syncs all in
// the end.
inline bool SyncsAtTheEnd(int error) { return error == ENOSYS || error == EOPNOTSUPP || error == EINVAL; }

// Calls `call` again as long as a signal interrupts it.
template <class Call>
auto Uninterrupted(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_SYSTEM_ERRORS_H_
