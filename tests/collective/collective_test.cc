// Tests collectives over as many ranks as mpirun starts. Every rank runs every test, and checks its own part.
#include "server/collective/collective.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <thread>
#include <vector>

#include "server/collective/host_meeting.h"

namespace slotwise {
namespace {

class CollectiveTest : public testing::TestWithParam<HostMemoryUse> {
 protected:
  std::size_t me() const { return static_cast<std::size_t>(Value(collective_->rank())); }
  std::size_t ranks() const { return static_cast<std::size_t>(collective_->size()); }
  std::unique_ptr<Collective> collective_ = MakeMpiCollective(GetParam());
};

INSTANTIATE_TEST_SUITE_P(With, CollectiveTest,
                         testing::Values(HostMemoryUse::kAllowed, HostMemoryUse::kForbidden),
                         [](const auto& test) {
                           return test.param == HostMemoryUse::kAllowed ? "HostMemory" : "MpiAlone";
                         });

TEST_P(CollectiveTest, RanksOfOneHostMeetThereIfTheyMay) {
  const bool meets = ranks() > 1 && GetParam() == HostMemoryUse::kAllowed;
  EXPECT_EQ(collective_->meeting() != nullptr, meets);
  EXPECT_EQ(collective_->bell() != nullptr, meets);
}

TEST_P(CollectiveTest, OneRankWithoutTheMemoryKeepsAllFromIt) {
  if (ranks() == 1) GTEST_SKIP() << "takes two ranks";
  for (std::size_t without = 0; without < ranks(); ++without) {
    const auto use = me() == without ? HostMemoryUse::kForbidden : GetParam();
    const auto collective = MakeMpiCollective(use);
    EXPECT_EQ(collective->meeting(), nullptr);
    std::array<std::uint64_t, 1> together{1};
    collective->AllReduceSum(together);
    EXPECT_EQ(together[0], ranks());
  }
}

TEST_P(CollectiveTest, AllGatherTakesAnySize) {
  for (const std::size_t size : {HostMeeting::kMostBytes / 8, HostMeeting::kMostBytes / 8 + 1}) {
    const std::vector<std::uint64_t> mine(size, me() + 7);
    std::vector<std::uint64_t> all(size * ranks());
    collective_->AllGather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
    for (std::size_t r = 0; r < ranks(); ++r) {
      EXPECT_EQ(all[r * size], r + 7);
      EXPECT_EQ(all[(r + 1) * size - 1], r + 7);
    }
    std::vector<std::uint64_t> sums(size, me());
    collective_->AllReduceSum(sums);
    EXPECT_EQ(sums, std::vector<std::uint64_t>(size, ranks() * (ranks() - 1) / 2));
  }
}

TEST_P(CollectiveTest, AWakeEndsTheWaitForABell) {
  if (collective_->bell() == nullptr) GTEST_SKIP() << "ranks poll for wakes";
  constexpr std::chrono::seconds kPatience{60};
  for (std::uint64_t wait = 1; wait <= 50; ++wait) {
    if (me() == wait % ranks()) {
      collective_->Wake(wait);
    } else {
      for (;;) {
        const std::uint32_t rung = collective_->bell()->rung();
        if (collective_->PollWake(wait)) break;
        const auto began = std::chrono::steady_clock::now();
        collective_->bell()->Await(rung, kPatience);
        ASSERT_LT(std::chrono::steady_clock::now() - began, kPatience);
      }
    }
    std::array<std::uint64_t, 1> together{1};
    collective_->AllReduceSum(together);
  }
}

TEST_P(CollectiveTest, AllRanksOfOneMachineKnowTheirPlaces) {
  EXPECT_EQ(collective_->local_size(), collective_->size());
  EXPECT_EQ(collective_->local_rank(), Value(collective_->rank()));
}

TEST_P(CollectiveTest, AllGatherBringsEveryonesBytesInRankOrder) {
  const std::array<std::uint64_t, 2> mine{me() + 1, 100 * me()};
  std::vector<std::uint64_t> all(2 * ranks());
  collective_->AllGather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  for (std::size_t r = 0; r < ranks(); ++r) {
    EXPECT_EQ(all[2 * r], r + 1);
    EXPECT_EQ(all[2 * r + 1], 100 * r);
  }
}

TEST_P(CollectiveTest, AllReduceSumWrapsAround) {
  std::array<std::uint64_t, 2> values{me() + 1, me() == 0 ? ~0ULL : 1};
  collective_->AllReduceSum(values);
  EXPECT_EQ(values[0], ranks() * (ranks() + 1) / 2);
  EXPECT_EQ(values[1], ranks() - 2);
}

TEST_P(CollectiveTest, OneRankWakesTheOthersAndOldWakesAreForgotten) {
  for (std::uint64_t wait = 1; wait <= 20; ++wait) {
    const std::size_t waker = wait % ranks();
    // In every third wait all ranks wake each other, and late wakes arrive during later waits.
    if (me() == waker || wait % 3 == 0) {
      collective_->Wake(wait);
    } else {
      while (!collective_->PollWake(wait)) std::this_thread::yield();
    }
    std::array<std::uint64_t, 1> together{1};
    collective_->AllReduceSum(together);
    ASSERT_EQ(together[0], ranks());
  }
  EXPECT_FALSE(collective_->PollWake(1000));
}

}  // namespace
}  // namespace slotwise
