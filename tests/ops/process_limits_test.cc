#include "server/ops/process_limits.h"

#include <gtest/gtest.h>

namespace slotwise {
namespace {

constexpr rlim_t kMib = rlim_t{1} << 20;

TEST(ProcessLimits, AreEnoughAtTheirLeast) {
  EXPECT_TRUE((ProcessLimits{.address_bytes = 4096 * kMib, .files = 64}.Check().ok()));
  EXPECT_TRUE(ProcessLimits{}.Check().ok());
  EXPECT_TRUE(ProcessLimits::Mine().Check().ok());
}

TEST(ProcessLimits, AreRefusedByNameBelowThat) {
  EXPECT_EQ(
      (ProcessLimits{.address_bytes = 4096 * kMib - 1}.Check()),
      FailedPrecondition("this process may have 4194303 KiB of address space (RLIMIT_AS, ulimit -v), and a "
                         "server needs at least 4194304"));
  EXPECT_EQ(
      (ProcessLimits{.files = 63}.Check()),
      FailedPrecondition("this process may open 63 files (RLIMIT_NOFILE, ulimit -n), and a server needs at "
                         "least 64"));
  EXPECT_EQ((ProcessLimits{.threads = 43, .needs_threads = 44}.Check()),
            FailedPrecondition("the system gives this process no more than 43 threads (RLIMIT_NPROC, ulimit "
                               "-u, or a container's limit of pids), and a server needs at least 44"));
}

}  // namespace
}  // namespace slotwise
