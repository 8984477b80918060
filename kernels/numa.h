// Host memory near a device: copies across a machine's sockets are slower.
// Thread-safety: a free function; a scope belongs to the thread that made it.
#ifndef SLOTWISE_KERNELS_NUMA_H_
#define SLOTWISE_KERNELS_NUMA_H_

#include <string>

namespace slotwise {

// The NUMA node of a PCI device, named as CUDA names it ("0000:1B:00.0"); -1 if the system does not say.
int NumaNodeOfPciDevice(const std::string& bus_id);

// While it lives, this thread's new memory comes from `node` as long as there is some. No change with -1, and
// where the system does not let processes choose (containers often do not).
class PreferNumaNode {
 public:
  explicit PreferNumaNode(int node);
  ~PreferNumaNode();
  PreferNumaNode(const PreferNumaNode&) = delete;
  PreferNumaNode& operator=(const PreferNumaNode&) = delete;

 private:
  static constexpr unsigned long kMostNodes = 1024;
  static constexpr unsigned long kMaxNode =
      kMostNodes + 1;  // of these calls, which take one more than they use
  static constexpr unsigned long kWordBits = 8 * sizeof(unsigned long);

  bool changed_ = false;
  int mode_before_ = 0;
  unsigned long nodes_before_[kMostNodes / kWordBits] = {};
};

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_NUMA_H_
