#include "kernels/numa.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <fstream>

namespace slotwise {
int NumaNodeOfPciDevice(const std::string& bus_id) {
  std::string name = bus_id;
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  int node = -1;
  std::ifstream("/sys/bus/pci/devices/" + name + "/numa_node") >> node;
  return node;
}

// Makes system calls, because libnuma would be one more library for two of them.
PreferNumaNode::PreferNumaNode(int node) {
  if (node < 0 || static_cast<unsigned long>(node) >= kMostNodes) return;
  if (syscall(SYS_get_mempolicy, &mode_before_, nodes_before_, kMaxNode, nullptr, 0) != 0) return;
  unsigned long nodes[kMostNodes / kWordBits] = {};
  const auto n = static_cast<unsigned long>(node);
  nodes[n / kWordBits] = 1UL << (n % kWordBits);
  changed_ = syscall(SYS_set_mempolicy, MPOL_PREFERRED, nodes, kMaxNode) == 0;
}

PreferNumaNode::~PreferNumaNode() {
  if (changed_) syscall(SYS_set_mempolicy, mode_before_, nodes_before_, kMaxNode);
}

}  // namespace slotwise
