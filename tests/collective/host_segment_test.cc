// Tests the memory that processes of a host share. Here one process maps it twice.
#include "server/collective/host_segment.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>

namespace slotwise {
namespace {

constexpr std::size_t kBytes = 10'000;

TEST(HostSegmentTest, WhoOpensItSeesTheMakersBytes) {
  const auto made = HostSegment::Make(kBytes);
  ASSERT_NE(made, nullptr);
  EXPECT_TRUE(
      std::ranges::all_of(std::span(made->data(), kBytes), [](std::byte b) { return b == std::byte{0}; }));
  const auto opened = HostSegment::Open(made->name(), kBytes);
  ASSERT_NE(opened, nullptr);
  ASSERT_NE(opened->data(), made->data());
  made->data()[kBytes - 1] = std::byte{7};
  opened->data()[0] = std::byte{9};
  EXPECT_EQ(opened->data()[kBytes - 1], std::byte{7});
  EXPECT_EQ(made->data()[0], std::byte{9});
}

TEST(HostSegmentTest, ASegmentOfAnotherSizeIsNotOpened) {
  const auto made = HostSegment::Make(kBytes);
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(HostSegment::Open(made->name(), kBytes - 1), nullptr);
  EXPECT_EQ(HostSegment::Open({"/slotwise-of-no-rank"}, kBytes), nullptr);
}

TEST(HostSegmentTest, WithoutItsNameItIsOpenedNoMoreAndLivesOn) {
  auto made = HostSegment::Make(kBytes);
  ASSERT_NE(made, nullptr);
  const HostSegment::Name name = made->name();
  const auto opened = HostSegment::Open(name, kBytes);
  ASSERT_NE(opened, nullptr);
  made->RemoveName();
  EXPECT_EQ(HostSegment::Open(name, kBytes), nullptr);
  made->data()[5] = std::byte{3};
  made.reset();
  EXPECT_EQ(opened->data()[5], std::byte{3});
}

TEST(HostSegmentTest, AMakerThatGoesLeavesNoName) {
  auto made = HostSegment::Make(kBytes);
  ASSERT_NE(made, nullptr);
  const HostSegment::Name name = made->name();
  EXPECT_EQ(access(("/dev/shm" + std::string(name.data())).c_str(), F_OK), 0);
  made.reset();
  EXPECT_NE(access(("/dev/shm" + std::string(name.data())).c_str(), F_OK), 0);
}

TEST(HostSegmentTest, MemoryThatTheSystemHasNotIsNull) {
  EXPECT_EQ(HostSegment::Make(std::size_t{1} << 60), nullptr);
}

}  // namespace
}  // namespace slotwise
