// A shard's keys and rows: what room there is for, and who may take memory.
#include "kernels/table.inl"

#include <algorithm>
#include <cstdint>
#include <new>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend/cpu.h"
#include "tests/support/checked_table.h"

namespace slotwise::test {
namespace {

// The CPU backend on a device that has so much memory for tables.
struct MeasuredBackend : CpuBackend {
  static std::size_t MemoryForTables(CpuQueue& /*queue*/) { return memory; }
  inline static std::size_t memory = SIZE_MAX;
};
using SmallTable = Table<MeasuredBackend>;

class ATable : public ::testing::Test {
 protected:
  void SetUp() override { MeasuredBackend::memory = SIZE_MAX; }

  // Gives keys [first, first + count) rows.
  void Add(SmallTable& table, std::uint64_t first, std::uint32_t count) {
    std::vector<Key> keys(count);
    std::ranges::generate(keys, [&first] { return Key{first++}; });
    std::vector<RowIndex> rows(count);
    table.ReserveAdd(queue_, count);
    EXPECT_EQ(table.Add(queue_, keys.data(), body::Chosen{nullptr}, count, rows.data()), count);
  }

  CpuQueue queue_{1};
};

TEST_F(ATable, HasNoRoomForMoreRowsThanItMayHave) {
  TableOptions options = MakeOptions(1);
  options.max_rows = 10;
  SmallTable table(queue_, options, 0);
  EXPECT_GT(table.Usage().bytes, 100 * sizeof(float)) << "its memory comes in pieces, and is there for more";
  EXPECT_TRUE(table.HasRoomFor(10));
  EXPECT_FALSE(table.HasRoomFor(11));
  Add(table, 0, 4);
  EXPECT_TRUE(table.HasRoomFor(6));
  EXPECT_FALSE(table.HasRoomFor(7));
}

TEST_F(ATable, GrowsIntoNoMemoryThatBatchesNeed) {
  SmallTable table(queue_, MakeOptions(64), 0);
  constexpr std::uint32_t kMore = 100'000;
  constexpr std::size_t kBytesOfRows = std::size_t{kMore} * 64 * sizeof(float);
  Add(table, 0, 10);
  const ShardUsage before = table.Usage();

  MeasuredBackend::memory = kBytesOfRows / 2;
  EXPECT_THROW(table.MakeRoomFor(queue_, kMore), std::bad_alloc);
  EXPECT_FALSE(table.HasRoomFor(kMore));
  EXPECT_EQ(table.Usage().rows, before.rows);

  MeasuredBackend::memory = kBytesOfRows;
  table.MakeRoomFor(queue_, kMore);
  EXPECT_TRUE(table.HasRoomFor(kMore));
  EXPECT_LE(table.values().stride * sizeof(float) * kMore, table.Usage().bytes);
  EXPECT_LT(table.Usage().bytes, before.bytes + 2 * kBytesOfRows)
      << "not ahead, where there is no more to take";
  Add(table, 10, kMore);
}

TEST_F(ATable, RehashesIntoNoMemoryThatBatchesNeed) {
  SmallTable table(queue_, MakeOptions(1), 0);
  constexpr std::uint32_t kMore = 1'000'000;
  MeasuredBackend::memory = kMore * sizeof(body::Slot);  // at most a load of 1
  EXPECT_THROW(table.MakeRoomFor(queue_, kMore), std::bad_alloc);
}

TEST_F(ATable, BeginsInNoMemoryThatBatchesNeed) {
  MeasuredBackend::memory = std::size_t{1} << 20;
  EXPECT_THROW(SmallTable(queue_, MakeOptions(64), 100'000), std::bad_alloc);
  EXPECT_EQ(SmallTable(queue_, MakeOptions(64), 1'000).rows(), 0u);
}

TEST_F(ATable, LeavesMemoryToOtherTables) {
  constexpr std::uint32_t kRows = 100'000;
  constexpr std::size_t kBytesOfRows = std::size_t{kRows} * 64 * sizeof(float);
  constexpr std::size_t kPiece = std::size_t{2} << 20;  // in which memory comes
  SmallTable table(queue_, MakeOptions(64), kRows);
  const std::size_t slots = table.Usage().slots * sizeof(body::Slot);
  EXPECT_LT(table.Usage().bytes, slots + kBytesOfRows + kPiece) << "initial_rows, and no more";

  MeasuredBackend::memory = kBytesOfRows;
  Add(table, 0, kRows);
  const std::size_t before = table.Usage().bytes;
  table.MakeRoomFor(queue_, 100);
  EXPECT_LT(table.Usage().bytes, before + kBytesOfRows / 2 + kPiece) << "ahead, by half of what is left";
}

TEST_F(ATable, RemembersErasedRowsWhereThereIsNoMemoryForMore) {
  SmallTable table(queue_, MakeOptions(4), 0);
  Add(table, 0, 1000);
  MeasuredBackend::memory = 0;
  const std::vector<Key> erased{Key{1}, Key{7}, Key{1'000'000}};
  table.ReserveErase(3);
  EXPECT_EQ(table.Erase(queue_, erased.data(), 3), 2u);
  EXPECT_TRUE(table.HasRoomFor(2));
  EXPECT_EQ(table.rows(), 998u);
}

}  // namespace
}  // namespace slotwise::test
