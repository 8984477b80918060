// Items are sorted by bucket and by key, for all keys and sizes, in sorting steps of any size.
#include "server/durability/bucket_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace slotwise {
namespace {

std::uint32_t BucketOfTest(Key key) { return static_cast<std::uint32_t>(Value(key) % 5); }

// Keys that differ in the bytes of `mask` alone, each with its place as its row.
std::vector<KeyRow> RandomItems(std::size_t count, std::uint64_t mask) {
  std::mt19937_64 random(count ^ mask);
  std::vector<KeyRow> items;
  for (std::uint32_t i = 0; i < count; ++i)
    items.push_back({Key{(random() & mask) | (0x1234'5678'9ABC'DEF0 & ~mask)}, RowIndex{i}});
  return items;
}

class BucketOrderTest : public testing::TestWithParam<std::tuple<std::size_t, std::uint64_t>> {};

TEST_P(BucketOrderTest, ItemsAreSortedByBucketAndByKey) {
  const auto [count, mask] = GetParam();
  std::vector<KeyRow> wanted = RandomItems(count, mask);
  BucketSort<KeyRow> sort(
      count, [&](std::size_t i) { return wanted[i]; }, BucketOfTest);
  // A stable order, because few bytes make the same key more than once.
  std::ranges::stable_sort(wanted, {},
                           [](const KeyRow& item) { return std::pair(BucketOfTest(item.key), item.key); });
  std::vector<Key> sorted;
  for (std::span<const KeyRow> piece = sort.SortNext(100); !piece.empty(); piece = sort.SortNext(100)) {
    EXPECT_TRUE(piece.size() >= 100 || sorted.size() + piece.size() == count);
    for (const KeyRow& item : piece) {
      EXPECT_EQ(item.key, wanted[sorted.size()].key);
      sorted.push_back(item.key);
    }
  }
  EXPECT_EQ(sorted.size(), count);
  std::vector<bool> seen(count);
  for (const KeyRow& item : sort.TakeItems()) seen[Value(item.row)] = true;
  EXPECT_EQ(std::ranges::count(seen, true), static_cast<std::ptrdiff_t>(count)) << "rows go with their keys";
  BucketOrderChecker checker;
  if (mask == ~std::uint64_t{0}) {
    EXPECT_TRUE(checker.Take(sorted, sort.starts()));
  }
}

INSTANTIATE_TEST_SUITE_P(SizesAndBytes, BucketOrderTest,
                         testing::Combine(testing::Values(0, 1, 99, 1'279, 1'281, 40'000),
                                          testing::Values(~std::uint64_t{0}, std::uint64_t{0xFF00},
                                                          std::uint64_t{0xFFFF'0000'0000'00FF})));

}  // namespace
}  // namespace slotwise
