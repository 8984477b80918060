// All ranks connect, or all get the same reason for the failure.
#include "server/rooms.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "kernels/shard.h"
#include "server/ops/config.h"
#include "tests/support/apart_device.h"

namespace slotwise {
namespace {

constexpr std::chrono::seconds kLimit{60};  // for ranks that wait for each other

class Connecting : public testing::Test {
 protected:
  Connecting() {
    collective_->watchdog().Start(kLimit, [](const std::string& why) {
      std::fprintf(stderr, "%s: another rank has gone on\n", why.c_str());
      std::_Exit(1);
    });
  }

  // Connects ranks whose limits fit no host on which tables are the CPU's, but that of a GPU.
  Status Connected(std::unique_ptr<Device> device) {
    Rooms rooms;
    rooms.config = ParseConfig("limits { max_shared_mib: 16777216 }", "server.pbtxt")->values;
    rooms.device = std::move(device);
    return Connect(
               *collective_, [](const std::string& /*why*/) {}, rooms)
        .status();
  }

  std::unique_ptr<Collective> collective_ = MakeMpiCollective();
};

TEST(Backend, IsAGpuIfItIsAskedForOrFound) {
  EXPECT_TRUE(UsesGpu(v1::BACKEND_CUDA)) << "a host without one is told so when the device is made";
  EXPECT_FALSE(UsesGpu(v1::BACKEND_CPU));
  EXPECT_EQ(UsesGpu(v1::BACKEND_AUTO), CudaDeviceCount() > 0);
}

TEST_F(Connecting, WithAGpuOnSomeRanksIsRefusedOnAllWhateverTheirLimits) {
  const bool gpu = Value(collective_->rank()) == 1;
  const Status refused = Connected(gpu ? test::MakeApartDevice(0) : MakeCpuDevice(1));
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(refused.message(),
            "rank 1 has a GPU and rank 0 has none: a server's ranks run all on GPUs or all on CPUs "
            "(--backend cpu)");
}

TEST_F(Connecting, WithLimitsThatDoNotFitIsRefusedOnAllRanks) {
  const Status refused = Connected(MakeCpuDevice(1));
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(refused.message().starts_with("limits.max_shared_mib: 16777216: with this a rank sets aside "))
      << refused.message();
}

}  // namespace
}  // namespace slotwise
