// Measures this process's use of its host.
// Thread-safety: a free function, for any thread.
#ifndef SLOTWISE_SERVER_OPS_PROCESS_USAGE_H_
#define SLOTWISE_SERVER_OPS_PROCESS_USAGE_H_

#include <cstdint>

namespace slotwise {

struct ProcessUsage {
  double cpu_seconds = 0;  // of all threads, in user and system mode
  std::uint64_t resident_bytes = 0;
  std::uint64_t virtual_bytes = 0;
  // Bytes that malloc got from the system: in use by the program, and freed but kept by malloc. Both are 0 if
  // another allocator replaces the C library's, as a sanitizer's does.
  std::uint64_t heap_used_bytes = 0;
  std::uint64_t heap_free_bytes = 0;
  std::uint64_t open_files = 0;  // without the one of this reading
  std::uint64_t max_files = 0;   // the present soft limit, which the process may raise
};

// Reads the usage from the system. A value that cannot be read is 0.
ProcessUsage ReadProcessUsage();

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_OPS_PROCESS_USAGE_H_
