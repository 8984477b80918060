// Tests collectives over as many ranks as mpirun starts. Every rank runs every test, and checks its own part.
#include "server/collective/collective.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

namespace slotwise {
namespace {

class CollectiveTest : public testing::Test {
 protected:
  std::size_t me() const { return static_cast<std::size_t>(Value(collective_->rank())); }
  std::size_t ranks() const { return static_cast<std::size_t>(collective_->size()); }
  std::unique_ptr<Collective> collective_ = MakeMpiCollective();
};

TEST_F(CollectiveTest, AllRanksOfOneMachineKnowTheirPlaces) {
  EXPECT_EQ(collective_->local_size(), collective_->size());
  EXPECT_EQ(collective_->local_rank(), Value(collective_->rank()));
}

TEST_F(CollectiveTest, AllGatherBringsEveryonesBytesInRankOrder) {
  const std::array<std::uint64_t, 2> mine{me() + 1, 100 * me()};
  std::vector<std::uint64_t> all(2 * ranks());
  collective_->AllGather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  for (std::size_t r = 0; r < ranks(); ++r) {
    EXPECT_EQ(all[2 * r], r + 1);
    EXPECT_EQ(all[2 * r + 1], 100 * r);
  }
}

TEST_F(CollectiveTest, AllReduceSumWrapsAround) {
  std::array<std::uint64_t, 2> values{me() + 1, me() == 0 ? ~0ULL : 1};
  collective_->AllReduceSum(values);
  EXPECT_EQ(values[0], ranks() * (ranks() + 1) / 2);
  EXPECT_EQ(values[1], ranks() - 2);
}

TEST_F(CollectiveTest, OneRankWakesTheOthersAndOldWakesAreForgotten) {
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
