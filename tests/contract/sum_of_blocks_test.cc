// Blocks of several ranks are summed in rank order, from +0, in float32, in whatever type they travelled.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>

#include "slotwise/data_type.h"
#include "tests/contract/contract_test.h"
#include "tests/support/oracle.h"

namespace slotwise::test {
namespace {

constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16};
// Around what tiles load at once, and where a row of them ends.
constexpr std::size_t kSizes[] = {0, 1, 2, 3, 4, 5, 31, 32, 36, 127, 128, 129, 132, 1024, 1028, 5003, 70'000};

// Numbers of both signs and of so many magnitudes that adding them in another order shows, 16-bit ones too.
float NumberOf(std::size_t rank, std::size_t i) {
  if (i % 13 == 5) return -0.0F;
  const std::uint64_t drawn = OracleMix64(1'000'003 * (rank + 1) + i);
  const float mantissa = 1.0F + static_cast<float>(drawn % 1024) / 1024.0F;
  const int exponent = static_cast<int>((drawn >> 20) % 29) - 14;
  return std::ldexp((drawn >> 40) % 2 == 0 ? mantissa : -mantissa, exponent);
}

struct Blocks {
  std::size_t ranks;
  std::size_t size;
  DataType type;
  std::vector<float> numbers;  // [ranks][size], as they are once they travelled

  Blocks(std::size_t of_ranks, std::size_t of_size, DataType of_type)
      : ranks(of_ranks), size(of_size), type(of_type), numbers(ranks * size) {
    for (std::size_t at = 0; at < numbers.size(); ++at) numbers[at] = NumberOf(at / size, at % size);
    Widen(Bytes(0, ranks).data(), type, numbers);
  }

  // Of the blocks of ranks [first, last).
  std::vector<std::byte> Bytes(std::size_t first, std::size_t last) const {
    const std::span of(numbers.data() + first * size, (last - first) * size);
    std::vector<std::byte> bytes(of.size() * BytesOf(type));
    Narrow(of, type, bytes.data());
    return bytes;
  }

  std::vector<float> Sum() const {
    std::vector<float> sum(size, 0.0F);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      for (std::size_t i = 0; i < size; ++i) sum[i] += numbers[rank * size + i];
    }
    return sum;
  }

  std::string Name() const {
    return std::string(ToString(type)) + ", " + std::to_string(ranks) + " ranks, " + std::to_string(size);
  }
};

class ASumOfBlocks : public ContractTest {
 protected:
  void SetUp() override {
    if (OverRanks()) GTEST_SKIP() << "this is about one process";
  }

  static void ForEachKind(const std::function<void(const Blocks&)>& check) {
    for (const DataType type : kTypes) {
      for (const std::size_t ranks : {1, 2, 3, 4, 8}) {
        for (const std::size_t size : kSizes) check(Blocks(ranks, size, type));
      }
    }
  }

  DeviceArray<std::byte> OnDevice(const std::vector<std::byte>& bytes) {
    return DeviceArray<std::byte>(device(), std::span<const std::byte>(bytes));
  }
  DeviceArray<float> Unwritten(std::size_t size) {
    const std::vector<float> nan(size, std::numeric_limits<float>::quiet_NaN());
    return DeviceArray<float>(device(), std::span<const float>(nan));
  }
};
SLOTWISE_ON_EVERY_BACKEND(ASumOfBlocks);

TEST_P(ASumOfBlocks, IsInRankOrderFromPlusZero) {
  for (const DataType type : kTypes) {
    Blocks reversed(3, 5003, type);
    const std::vector<float> in_order = reversed.Sum();
    std::swap_ranges(reversed.numbers.begin(), reversed.numbers.begin() + 5003,
                     reversed.numbers.end() - 5003);
    ASSERT_NE(reversed.Sum(), in_order) << "these numbers show no order";
  }
  ForEachKind([&](const Blocks& blocks) {
    auto all = OnDevice(blocks.Bytes(0, blocks.ranks));
    auto sum = Unwritten(blocks.size);
    device().WorkStream().SumOverRanks(
        {{all.data(), blocks.type}, static_cast<int>(blocks.ranks), blocks.size}, sum.data());
    EXPECT_TRUE(SameBytes(sum.Download(), blocks.Sum())) << blocks.Name();
    EXPECT_EQ(all.Download(), blocks.Bytes(0, blocks.ranks)) << "it wrote into the blocks";
  });
}

// A rank's own block need not be copied to where the others' lie; the place for it there holds anything.
TEST_P(ASumOfBlocks, TakesTheOwnBlockFromWhereItLies) {
  ForEachKind([&](const Blocks& blocks) {
    for (const std::size_t me : {std::size_t{0}, blocks.ranks / 2, blocks.ranks - 1}) {
      Blocks others = blocks;
      std::fill_n(others.numbers.begin() + static_cast<std::ptrdiff_t>(me * blocks.size), blocks.size, 77.0F);
      auto received = OnDevice(others.Bytes(0, blocks.ranks));
      auto own = OnDevice(blocks.Bytes(me, me + 1));
      auto sum = Unwritten(blocks.size);
      device().WorkStream().SumOverRanks({.blocks = {received.data(), blocks.type},
                                          .ranks = static_cast<int>(blocks.ranks),
                                          .size = blocks.size,
                                          .own = own.data(),
                                          .me = static_cast<int>(me)},
                                         sum.data());
      EXPECT_TRUE(SameBytes(sum.Download(), blocks.Sum())) << blocks.Name() << ", me " << me;
    }
  });
}

// An array's beginning is where the bags before it end: anywhere that a number may lie.
TEST_P(ASumOfBlocks, MayBeginAtAnyNumber) {
  for (const DataType type : kTypes) {
    const Blocks blocks(3, 1028, type);
    for (const std::size_t skipped : {1, 2, 3}) {
      std::vector<std::byte> bytes(skipped * BytesOf(type));
      const std::vector<std::byte> of_blocks = blocks.Bytes(0, 3);
      bytes.insert(bytes.end(), of_blocks.begin(), of_blocks.end());
      auto all = OnDevice(bytes);
      auto sum = Unwritten(blocks.size + skipped);
      device().WorkStream().SumOverRanks({{all.data() + skipped * BytesOf(type), type}, 3, blocks.size},
                                         sum.data() + skipped);
      const std::vector<float> written = sum.Download();
      EXPECT_TRUE(
          SameBytes({written.begin() + static_cast<std::ptrdiff_t>(skipped), written.end()}, blocks.Sum()))
          << ToString(type) << " from " << skipped;
      EXPECT_TRUE(std::isnan(written[skipped - 1])) << "it wrote before the sum";
    }
  }
}

TEST_P(ASumOfBlocks, IsTheSameBytesOnTheHost) {
  ForEachKind([&](const Blocks& blocks) {
    const std::vector<std::byte> all = blocks.Bytes(0, blocks.ranks);
    std::vector<float> sum(blocks.size + 1, -1.0F);
    SumOverRanksOnHost({{all.data(), blocks.type}, static_cast<int>(blocks.ranks), blocks.size}, sum.data());
    EXPECT_EQ(sum.back(), -1.0F) << "it wrote past the sum";
    sum.pop_back();
    EXPECT_TRUE(SameBytes(sum, blocks.Sum())) << blocks.Name();
  });
}

}  // namespace
}  // namespace slotwise::test
