#include "server/intake/finite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace slotwise {
namespace {

TEST(FirstNonFinite, FindsNothingAmongFiniteValues) {
  using Limits = std::numeric_limits<float>;
  EXPECT_EQ(FirstNonFinite(std::span<const float>()), std::nullopt);
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

// Of all 16-bit numbers, those are found that are not finite floats.
TEST(FirstNonFinite, FindsTheHalvesThatAreNoFiniteFloats) {
  for (const DataType type : {DataType::kFloat16, DataType::kBFloat16}) {
    for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
      std::vector<std::uint16_t> halves(5, static_cast<std::uint16_t>(0x0001));
      halves[3] = static_cast<std::uint16_t>(bits);
      float value = 0;
      Widen(reinterpret_cast<const std::byte*>(&halves[3]), type, {&value, 1});
      const auto expected = std::isfinite(value) ? std::nullopt : std::optional<std::size_t>(3);
      ASSERT_EQ(FirstNonFinite(halves.data(), type, 5), expected) << ToString(type) << " " << bits;
      ASSERT_EQ(FirstNonFinite(halves.data(), type, 3), std::nullopt);
    }
    for (const std::size_t place : {0u, 1u, 4095u, 4096u, 9999u}) {
      std::vector<std::uint16_t> halves(10'000, 0x3C00);
      halves[place] = halves.back() = 0x7F80;
      EXPECT_EQ(FirstNonFinite(halves.data(), type, halves.size()), place);
    }
  }
}

}  // namespace
}  // namespace slotwise
