// Says how much of the host's memory this process may have: what the machine has, within the limits of its
// control groups (a container's, a service's).
//
// The kernel kills a process that takes more, without a message. So tables ask first.
// Thread-safety: free functions.
#ifndef SLOTWISE_KERNELS_BACKEND_HOST_MEMORY_H_
#define SLOTWISE_KERNELS_BACKEND_HOST_MEMORY_H_

#include <cstddef>
#include <string>

namespace slotwise {

struct HostMemoryBytes {
  std::size_t total = 0;  // bytes that this process could have if no other process had any
  std::size_t available =
      0;  // bytes that can still be taken: free, or in use for pages that can be read from files again
};

// Reads what Linux says in /proc and /sys/fs/cgroup (both versions of control groups), below `root`, which
// tests set. A file that cannot be read sets no limit.
HostMemoryBytes ReadHostMemory(const std::string& root = "");

// Returns the bytes of anonymous memory that this process has touched.
std::size_t ResidentBytes();

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_BACKEND_HOST_MEMORY_H_
