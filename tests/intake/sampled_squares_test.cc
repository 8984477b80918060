// A sample of an array's numbers equals one that is taken number by number.
#include "server/intake/sampled_squares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "server/intake/finite.h"

namespace slotwise {
namespace {

// Returns numbers as they travel, at an address that is a multiple of nothing.
std::vector<std::byte> OnTheWire(const std::vector<float>& numbers, DataType type) {
  std::vector<std::byte> bytes(1 + numbers.size() * BytesOf(type));
  if (type == DataType::kFloat32) {
    std::ranges::copy(std::as_bytes(std::span(numbers)), bytes.begin() + 1);
  } else {
    Narrow(numbers, type, bytes.data() + 1);
  }
  return bytes;
}

SquareSum Expected(const std::vector<std::byte>& bytes, DataType type, std::size_t count,
                   std::uint64_t first) {
  SquareSum sum;
  for (std::size_t i = 0; i < count; ++i) {
    if (i * BytesOf(type) / 64 % 17 != first % 17) continue;
    float value = 0;
    std::vector<std::byte> number(bytes.begin() + 1 + static_cast<std::ptrdiff_t>(i * BytesOf(type)),
                                  bytes.begin() + 1 + static_cast<std::ptrdiff_t>((i + 1) * BytesOf(type)));
    if (type == DataType::kFloat32) {
      std::memcpy(&value, number.data(), sizeof(value));
    } else {
      Widen(number.data(), type, {&value, 1});
    }
    sum.squares += double{value} * double{value};
    ++sum.numbers;
  }
  return sum;
}

std::vector<float> Drawn(std::size_t count) {
  std::mt19937 random(20261125);
  std::normal_distribution<float> normal(0, 0.5F);
  std::vector<float> numbers(count);
  for (float& number : numbers) number = normal(random);
  return numbers;
}

class SampledSquaresTest : public testing::TestWithParam<DataType> {};
INSTANTIATE_TEST_SUITE_P(OfEveryType, SampledSquaresTest,
                         testing::Values(DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16),
                         [](const auto& test) { return std::string(ToString(test.param)); });

TEST_P(SampledSquaresTest, TakesOneLineOfSeventeen) {
  for (const std::size_t count : {0, 1, 15, 16, 17, 31, 32, 33, 272, 288, 4095, 4096, 4097, 12'345}) {
    const auto bytes = OnTheWire(Drawn(count), GetParam());
    for (const std::uint64_t first : {0ULL, 1ULL, 16ULL, 17ULL, 18ULL, ~0ULL}) {
      const SquareSum expected = Expected(bytes, GetParam(), count, first);
      SampledSquares squares(first);
      squares.Add(bytes.data() + 1, GetParam(), count);
      EXPECT_EQ(squares.sum().numbers, expected.numbers) << count << " from " << first;
      EXPECT_NEAR(squares.sum().squares, expected.squares, 1e-12 * expected.squares);
    }
  }
}

TEST_P(SampledSquaresTest, HasTheSameBitsHoweverNumbersAreCut) {
  constexpr std::size_t kCount = 10'000;
  const auto bytes = OnTheWire(Drawn(kCount), GetParam());
  SampledSquares whole(5);
  whole.Add(bytes.data() + 1, GetParam(), kCount);
  for (const std::size_t piece : {32, 64, 4096}) {
    SampledSquares cut(5);
    for (std::size_t at = 0; at < kCount; at += piece) {
      cut.Add(bytes.data() + 1 + at * BytesOf(GetParam()), GetParam(), std::min(piece, kCount - at));
    }
    EXPECT_EQ(cut.sum(), whole.sum()) << piece;
  }
}

TEST_P(SampledSquaresTest, IsTakenOfAllThatIsFinite) {
  constexpr std::size_t kCount = 20'000;
  const auto bytes = OnTheWire(Drawn(kCount), GetParam());
  SampledSquares alone(3), beside(3);
  alone.Add(bytes.data() + 1, GetParam(), kCount);
  ArrayHash hash, with_squares;
  EXPECT_EQ(FirstNonFinite(bytes.data() + 1, GetParam(), kCount, &hash), std::nullopt);
  EXPECT_EQ(FirstNonFinite(bytes.data() + 1, GetParam(), kCount, &with_squares, &beside), std::nullopt);
  EXPECT_EQ(beside.sum(), alone.sum());
  EXPECT_EQ(with_squares.value(), hash.value());
}

TEST(SampledSquaresTest, OverASequenceOfArraysTakesEachNumberOnce) {
  std::vector<float> numbers(40);
  std::vector<int> taken(numbers.size());
  for (std::uint64_t first = 100; first < 117; ++first) {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      std::ranges::fill(numbers, 0.0F);
      numbers[i] = 1;
      SampledSquares squares(first);
      squares.Add(numbers.data(), DataType::kFloat32, numbers.size());
      taken[i] += squares.sum().squares == 1 ? 1 : 0;
    }
  }
  EXPECT_EQ(taken, std::vector<int>(numbers.size(), 1));
}

TEST(SampledSquaresTest, NoFiniteNumberMakesAnInfiniteSum) {
  const std::vector<float> largest(100'000, std::numeric_limits<float>::lowest());
  const std::vector<float> smallest(100'000, std::numeric_limits<float>::denorm_min());
  for (const auto& numbers : {largest, smallest}) {
    SampledSquares squares(0);
    squares.Add(numbers.data(), DataType::kFloat32, numbers.size());
    const SquareSum sum = squares.sum();
    EXPECT_TRUE(std::isfinite(sum.squares));
    const double expected = std::fabs(double{numbers[0]});
    EXPECT_NEAR(std::sqrt(sum.squares / static_cast<double>(sum.numbers)), expected, 1e-12 * expected);
  }
}

}  // namespace
}  // namespace slotwise
