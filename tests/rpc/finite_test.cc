#include "server/rpc/finite.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace slotwise {
namespace {

TEST(FirstNonFinite, FindsNothingAmongFiniteValues) {
  using Limits = std::numeric_limits<float>;
  EXPECT_EQ(FirstNonFinite({}), std::nullopt);
  const std::vector<float> values{0.0F,         -0.0F, Limits::max(), Limits::lowest(), Limits::denorm_min(),
                                  Limits::min()};
  EXPECT_EQ(FirstNonFinite(values), std::nullopt);
}

TEST(FirstNonFinite, FindsTheFirstWhereverItIs) {
  using Limits = std::numeric_limits<float>;
  for (const float bad : {Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN(), -Limits::quiet_NaN(),
                          Limits::signaling_NaN()}) {
    for (const std::size_t place : {0u, 1u, 4095u, 4096u, 4097u, 9998u, 9999u}) {
      std::vector<float> values(10'000, 1.0F);
      values[place] = bad;
      values.back() = bad;
      EXPECT_EQ(FirstNonFinite(values), place);
    }
  }
}

}  // namespace
}  // namespace slotwise
