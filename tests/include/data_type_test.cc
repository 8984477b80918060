// Half precision is the nearest number that 16 bits can represent, ties to even.
#include "slotwise/data_type.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/batches.h"

namespace slotwise {
namespace {

// Returns the value of 16 bits by the standard's formula, in double.
double Meaning(std::uint16_t bits, int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  }
  const double fraction = std::ldexp(mantissa, -mantissa_bits);
  return sign * (exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias));
}

// A format and its two conversions.
struct Format {
  DataType type;
  int exponent_bits;
  std::uint16_t (*to)(float);
  float (*from)(std::uint16_t);
};

const Format kFormats[] = {{DataType::kFloat16, 5, ToFloat16, FromFloat16},
                           {DataType::kBFloat16, 8, ToBFloat16, FromBFloat16}};

std::string Name(const ::testing::TestParamInfo<Format>& info) {
  return std::string(ToString(info.param.type));
}

class DataTypeTest : public ::testing::TestWithParam<Format> {};

TEST_P(DataTypeTest, WidensEveryNumberExactlyAndNarrowsItBack) {
  const Format& format = GetParam();
  for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const double meaning = Meaning(half, format.exponent_bits);
    const float wide = format.from(half);
    if (std::isnan(meaning)) {
      ASSERT_TRUE(std::isnan(wide)) << bits;
      ASSERT_TRUE(std::isnan(format.from(format.to(wide)))) << bits;
      ASSERT_EQ(std::signbit(format.from(format.to(wide))), (half & 0x8000) != 0) << bits;
      continue;
    }
    ASSERT_EQ(wide, meaning) << bits;
    ASSERT_EQ(std::signbit(wide), std::signbit(meaning)) << bits;
    ASSERT_EQ(format.to(wide), half);
  }
}

TEST_P(DataTypeTest, RoundsToTheNearestAndTiesToEven) {
  const Format& format = GetParam();
  // Between each two neighbours, the test tries the middle and the floats just below and just above it.
  for (std::uint16_t low = 0; !std::isinf(format.from(low)); ++low) {
    const auto high = static_cast<std::uint16_t>(low + 1);
    const double below = Meaning(low, format.exponent_bits);
    double above = Meaning(high, format.exponent_bits);
    if (std::isinf(above)) above = below + (below - Meaning(low - 1, format.exponent_bits));
    const auto middle = static_cast<float>((below + above) / 2);
    ASSERT_EQ(static_cast<double>(middle), (below + above) / 2) << "the middle is no float: " << low;
    const std::uint16_t even = low % 2 == 0 ? low : high;
    ASSERT_EQ(format.to(middle), even) << low;
    ASSERT_EQ(format.to(std::nextafter(middle, 0.0F)), low) << low;
    ASSERT_EQ(format.to(std::nextafter(middle, std::numeric_limits<float>::infinity())), high) << low;
    ASSERT_EQ(format.to(-middle), even | 0x8000) << low;
  }
}

TEST_P(DataTypeTest, KeepsZerosSignsAndInfinities) {
  const Format& format = GetParam();
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(format.to(0.0F), 0);
  EXPECT_EQ(format.to(-0.0F), 0x8000);
  EXPECT_EQ(format.from(format.to(infinity)), infinity);
  EXPECT_EQ(format.from(format.to(-infinity)), -infinity);
  EXPECT_EQ(format.from(format.to(std::numeric_limits<float>::max())), infinity);
  // These are NaNs of several payloads, which careless rounding carries into infinity or the sign.
  for (const std::uint32_t bits : {0x7F80'0001U, 0x7FFF'FFFFU, 0xFFFF'FFFFU, 0x7FC0'0000U}) {
    EXPECT_TRUE(std::isnan(format.from(format.to(std::bit_cast<float>(bits))))) << bits;
  }
}

// Checks floats of every exponent and both signs, a prime apart, against the definition computed in double. A
// double holds the product and the quotient of any float with the powers of two used here exactly, and rounds
// a quotient to a whole number, ties to even.
TEST_P(DataTypeTest, RoundsAnyNumberAsTheDefinitionDoes) {
  const Format& format = GetParam();
  const int precision = 16 - format.exponent_bits;  // digits of a normal number, the first one too
  const int largest_exponent = (1 << (format.exponent_bits - 1)) - 1;
  constexpr std::uint64_t kStride = 1021;
  for (std::uint64_t bits = 0; bits <= 0xFFFF'FFFFU; bits += kStride) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if (!std::isfinite(value)) continue;
    const auto exact = static_cast<double>(value);
    const int exponent = std::max(exact == 0 ? 0 : std::ilogb(exact), 1 - largest_exponent);
    const double unit = std::ldexp(1.0, exponent - (precision - 1));
    double rounded = std::nearbyint(exact / unit) * unit;
    if (std::abs(rounded) >= std::ldexp(1.0, largest_exponent + 1)) {
      rounded = std::copysign(std::numeric_limits<double>::infinity(), rounded);
    }
    ASSERT_EQ(Meaning(format.to(value), format.exponent_bits), rounded) << value;
    ASSERT_EQ(std::signbit(format.from(format.to(value))), std::signbit(value)) << value;
  }
}

TEST_P(DataTypeTest, ConvertsArraysAsItConvertsNumbers) {
  const Format& format = GetParam();
  const std::uint64_t seed = test::Seed(77);
  SCOPED_TRACE(test::SeedNote(seed));
  test::Random random(seed);
  std::vector<float> values(1003);
  for (float& value : values) value = std::bit_cast<float>(static_cast<std::uint32_t>(random.Bits()));
  std::vector<std::byte> bytes(values.size() * 2 + 1);
  Narrow(values, format.type, bytes.data() + 1);  // an unaligned address
  std::vector<float> wide(values.size());
  Widen(bytes.data() + 1, format.type, wide);
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t half = 0;
    std::memcpy(&half, bytes.data() + 1 + i * 2, 2);
    ASSERT_EQ(half, format.to(values[i])) << values[i];
    ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), std::bit_cast<std::uint32_t>(format.from(half)));
  }
}

INSTANTIATE_TEST_SUITE_P(Halves, DataTypeTest, ::testing::ValuesIn(kFormats), Name);

// Device code may call functions that a compiler can evaluate.
TEST(DataType, IsConvertedAtCompileTimeToo) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  static_assert(ToFloat16(1.0F) == 0x3C00 && FromFloat16(0x3C00) == 1.0F);
  static_assert(ToFloat16(-65519.9F) == 0xFBFF && ToFloat16(65520.0F) == 0x7C00);
  static_assert(ToFloat16(0x1p-24F) == 1 && FromFloat16(1) == 0x1p-24F && ToFloat16(0x1p-25F) == 0);
  static_assert(ToBFloat16(1.0F) == 0x3F80 && FromBFloat16(0x3F80) == 1.0F);
  static_assert(ToBFloat16(std::numeric_limits<float>::max()) == 0x7F80 && FromBFloat16(0x7F80) == kInfinity);
  static_assert(ToBFloat16(std::numeric_limits<float>::quiet_NaN()) == 0x7FC0);
  // Compilers differ in how they compute with NaN, so this line is no static_assert.
  EXPECT_EQ(ToFloat16(std::numeric_limits<float>::quiet_NaN()), 0x7E00);
}

TEST(DataType, Float32TravelsAsItIs) {
  const std::vector<float> values{1.5F, -0.0F, std::numeric_limits<float>::denorm_min()};
  std::vector<std::byte> bytes(values.size() * BytesOf(DataType::kFloat32));
  Narrow(values, DataType::kFloat32, bytes.data());
  std::vector<float> back(values.size());
  Widen(bytes.data(), DataType::kFloat32, back);
  EXPECT_EQ(std::memcmp(values.data(), back.data(), bytes.size()), 0);
  EXPECT_EQ(ToString(DataType::kFloat32), "float32");
}

}  // namespace
}  // namespace slotwise
