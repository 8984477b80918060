// Takes host memory near a device, because copies across a machine's sockets are slower.
// Thread-safety: a free function; a scope belongs to the thread that made it.
#ifndef SLOTWISE_KERNELS_NUMA_H_
#define SLOTWISE_KERNELS_NUMA_H_

#include <string>

namespace slotwise {

// Returns the NUMA node of the PCI device that CUDA calls `bus_id` ("0000:1B:00.0"); -1 if it is unknown.
int NumaNodeOfPciDevice(const std::string& bus_id);

// While a PreferNumaNode exists, this thread's new memory comes from `node` as long as the node has some.
// Nothing changes if `node` is -1, or if the system does not let processes choose (as often in containers).
class PreferNumaNode {
 public:
  explicit PreferNumaNode(int node);
  ~PreferNumaNode();
  PreferNumaNode(const PreferNumaNode&) = delete;
  PreferNumaNode& operator=(const PreferNumaNode&) = delete;

 private:
  static constexpr unsigned long kMostNodes = 1024;
  static constexpr unsigned long kMaxNode = kMostNodes + 1;  // the system calls take one more than they use
  static constexpr unsigned long kWordBits = 8 * sizeof(unsigned long);

  bool changed_ = false;
  int mode_before_ = 0;
  unsigned long nodes_before_[kMostNodes / kWordBits] = {};
};

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_NUMA_H_
