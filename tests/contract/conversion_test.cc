// A device converts between float32 and 16 bits to the same bits as the host's functions, for arrays of any
// begin and length.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <vector>

#include "slotwise/data_type.h"
#include "tests/contract/contract_test.h"
#include "tests/support/batches.h"

namespace slotwise::test {
namespace {

constexpr DataType kNarrow[] = {DataType::kFloat16, DataType::kBFloat16};
constexpr std::byte kUntouched{0xA5};

// Floats of every kind: all exponents, both signs, the neighbours of ties, infinities and NaNs.
std::vector<float> EveryKindOfFloat() {
  std::vector<float> floats;
  for (std::uint32_t high = 0; high <= 0xFFFF; ++high) {
    for (const std::uint32_t low : {0x0000U, 0x0FFFU, 0x1000U, 0x1001U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU}) {
      floats.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  return floats;
}

class Conversion : public ContractTest {
 protected:
  void SetUp() override {
    if (OverRanks()) GTEST_SKIP() << "this is about one process";
  }

  // Converts `size` numbers that begin at number `first` of an array, to number `first` of another.
  std::vector<std::byte> Convert(std::span<const std::byte> numbers, DataType from, DataType to,
                                 std::size_t first, std::size_t size) {
    std::vector<std::byte> in(first * BytesOf(from), kUntouched);
    in.insert(in.end(), numbers.begin(), numbers.end());
    const std::vector<std::byte> unwritten((first + size + 1) * BytesOf(to), kUntouched);
    DeviceArray<std::byte> source(device(), std::span<const std::byte>(in));
    DeviceArray<std::byte> result(device(), std::span<const std::byte>(unwritten));
    device().WorkStream().Convert({source.data() + first * BytesOf(from), from}, size,
                                  {result.data() + first * BytesOf(to), to});
    std::vector<std::byte> all = result.Download();
    const auto is_untouched = [](std::byte byte) { return byte == kUntouched; };
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first * BytesOf(to));
    const auto end = all.end() - static_cast<std::ptrdiff_t>(BytesOf(to));
    EXPECT_TRUE(std::all_of(all.begin(), begin, is_untouched)) << "it wrote before the array";
    EXPECT_TRUE(std::all_of(end, all.end(), is_untouched)) << "it wrote past the array";
    return {begin, end};
  }
};
SLOTWISE_ON_EVERY_BACKEND(Conversion);

TEST_P(Conversion, NarrowsEveryKindOfNumberAsTheHostDoes) {
  const std::vector<float> floats = EveryKindOfFloat();
  for (const DataType type : kNarrow) {
    std::vector<std::byte> expected(floats.size() * 2);
    Narrow(floats, type, expected.data());
    EXPECT_TRUE(Convert(std::as_bytes(std::span(floats)), DataType::kFloat32, type, 0, floats.size()) ==
                expected)
        << ToString(type);
  }
}

TEST_P(Conversion, WidensEveryNumberAsTheHostDoes) {
  std::vector<std::byte> halves(0x10000 * 2);
  for (std::uint32_t half = 0; half <= 0xFFFF; ++half) {
    const auto bits = static_cast<std::uint16_t>(half);
    std::memcpy(halves.data() + 2 * half, &bits, 2);
  }
  for (const DataType type : kNarrow) {
    std::vector<float> expected(0x10000);
    Widen(halves.data(), type, expected);
    const std::vector<std::byte> wide = Convert(halves, type, DataType::kFloat32, 0, expected.size());
    EXPECT_TRUE(std::ranges::equal(wide, std::as_bytes(std::span(expected)))) << ToString(type);
  }
}

TEST_P(Conversion, OfAnyLengthMayBeginAtAnyNumber) {
  const std::uint64_t seed = Seed(20261122);
  SCOPED_TRACE(SeedNote(seed));
  Random random(seed);
  std::vector<float> floats(5003);
  for (float& value : floats) value = static_cast<float>(random.Below(2'000'001)) * 1e-3F - 1000;
  for (const std::size_t size : {0, 1, 3, 4, 8, 31, 32, 33, 128, 1023, 1024, 1025, 2048, 5003}) {
    const std::span some(floats.data(), size);
    for (const std::size_t first : {0, 1, 2, 3, 4}) {
      for (const DataType type : kNarrow) {
        SCOPED_TRACE(std::string(ToString(type)) + ", " + std::to_string(size) + " from " +
                     std::to_string(first));
        std::vector<std::byte> narrow(size * 2);
        Narrow(some, type, narrow.data());
        EXPECT_EQ(Convert(std::as_bytes(some), DataType::kFloat32, type, first, size), narrow);
        std::vector<float> wide(size);
        Widen(narrow.data(), type, wide);
        EXPECT_TRUE(std::ranges::equal(Convert(narrow, type, DataType::kFloat32, first, size),
                                       std::as_bytes(std::span(wide))));
      }
      EXPECT_TRUE(std::ranges::equal(
          Convert(std::as_bytes(some), DataType::kFloat32, DataType::kFloat32, first, size),
          std::as_bytes(some)));
    }
  }
}

TEST_P(Conversion, IsFromFloat32OrToIt) {
  DeviceArray<float> array(device(), std::vector<float>(8));
  Stream& stream = device().WorkStream();
  EXPECT_THROW(stream.Convert({array.data(), DataType::kFloat16}, 4, {array.data() + 4, DataType::kBFloat16}),
               std::invalid_argument);
}

}  // namespace
}  // namespace slotwise::test
