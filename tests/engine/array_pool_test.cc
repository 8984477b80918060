// Arrays come back to their pool.
#include "server/engine/array_pool.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace slotwise {
namespace {

class ArrayPoolTest : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device_ = MakeCpuDevice(1);
  ArrayPool pool_{*device_};
};

TEST_F(ArrayPoolTest, AnArrayThatWasReleasedIsTakenAgain) {
  const float* first = pool_.Take(1000).get();
  EXPECT_EQ(pool_.Take(1000).get(), first);
  EXPECT_EQ(pool_.Take(10).get(), first) << "a larger one does as well";
}

TEST_F(ArrayPoolTest, AnArrayThatIsReadIsNotTaken) {
  const auto first = pool_.Take(1000);
  const auto second = pool_.Take(1000);
  EXPECT_NE(first.get(), second.get());
}

TEST_F(ArrayPoolTest, AnArrayHoldsWhatItWasTakenFor) {
  pool_.Take(1000).reset();
  const auto larger = pool_.Take(100'000);
  std::fill_n(larger.get(), 100'000, 1.0F);  // the address sanitizer would see the end of a smaller one
  EXPECT_EQ(std::count(larger.get(), larger.get() + 100'000, 1.0F), 100'000);
}

TEST_F(ArrayPoolTest, TheSmallestThatSufficesIsTaken) {
  std::optional large = pool_.Take(100'000);
  std::optional small = pool_.Take(1000);
  const float* wanted = small->get();
  large.reset();
  small.reset();
  EXPECT_EQ(pool_.Take(900).get(), wanted);
}

TEST_F(ArrayPoolTest, TheLargestAreKept) {
  std::vector<std::shared_ptr<float[]>> taken;
  for (std::size_t i = 0; i <= ArrayPool::kKept; ++i) taken.push_back(pool_.Take(1000 * (i + 1)));
  std::vector<const float*> kept;
  for (std::size_t i = 1; i < taken.size(); ++i) kept.push_back(taken[i].get());
  taken.clear();
  for (std::size_t i = 0; i < kept.size(); ++i) taken.push_back(pool_.Take(1));
  for (std::size_t i = 0; i < kept.size(); ++i) EXPECT_EQ(taken[i].get(), kept[i]) << i;
}

TEST_F(ArrayPoolTest, ArraysOutliveTheirPoolAndDeviceAndAreReleasedByAnyThread) {
  std::shared_ptr<float[]> array;
  {
    const auto device = MakeCpuDevice(1);
    ArrayPool pool(*device);
    array = pool.Take(100);
  }
  std::fill_n(array.get(), 100, 2.0F);
  std::thread([array = std::move(array)]() mutable { array.reset(); }).join();
}

}  // namespace
}  // namespace slotwise
