// Tests from which NUMA node new memory comes within a scope.
#include "kernels/numa.h"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace slotwise {
namespace {

// This thread's policy; -1 where the system does not tell.
int Policy() {
  int policy = -1;
  return syscall(SYS_get_mempolicy, &policy, nullptr, 0UL, nullptr, 0UL) == 0 ? policy : -1;
}

// Whether the system lets processes choose.
bool CanChoose() {
  const unsigned long first_node = 1;
  const bool can = syscall(SYS_set_mempolicy, MPOL_PREFERRED, &first_node, 64UL) == 0;
  if (can) syscall(SYS_set_mempolicy, MPOL_DEFAULT, nullptr, 0UL);
  return can && Policy() == MPOL_DEFAULT;
}

TEST(PreferringANumaNode, HoldsForAScope) {
  if (!CanChoose()) GTEST_SKIP() << "this system does not let processes choose";
  {
    const PreferNumaNode scope(0);
    EXPECT_EQ(Policy(), MPOL_PREFERRED);
  }
  EXPECT_EQ(Policy(), MPOL_DEFAULT);
}

TEST(PreferringANumaNode, OfADeviceWhoseNodeIsUnknownChangesNothing) {
  const int before = Policy();
  const PreferNumaNode scope(NumaNodeOfPciDevice("0000:FF:1F.7"));
  EXPECT_EQ(Policy(), before);
}

TEST(PreferringANumaNode, ThatThereIsNotChangesNothing) {
  const int before = Policy();
  for (const int node : {1023, 1'000'000}) {
    const PreferNumaNode scope(node);
    EXPECT_EQ(Policy(), before) << node;
  }
}

}  // namespace
}  // namespace slotwise
