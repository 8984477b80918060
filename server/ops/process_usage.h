// Says what this process uses of its host.
// Thread-safety: a free function, for any thread.
#ifndef SLOTWISE_SERVER_OPS_PROCESS_USAGE_H_
#define SLOTWISE_SERVER_OPS_PROCESS_USAGE_H_

#include <cstdint>

namespace slotwise {

struct ProcessUsage {
  double cpu_seconds = 0;  // of all threads, in user and system mode
  std::uint64_t resident_bytes = 0;
  std::uint64_t virtual_bytes = 0;
  // Malloc has these bytes from the system: the program uses the former, and gave back the latter, which
  // malloc keeps. Both are 0 where another allocator stands in for the C library's, as a sanitizer's does.
  std::uint64_t heap_used_bytes = 0;
  std::uint64_t heap_free_bytes = 0;
  std::uint64_t open_files = 0;  // the reading's own are not counted
  std::uint64_t max_files = 0;   // as of now; the process may raise it
};

// Reads it from the system. What cannot be read is 0.
ProcessUsage ReadProcessUsage();

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_OPS_PROCESS_USAGE_H_
