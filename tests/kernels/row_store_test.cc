// Tests a shard's keys and rows: their room, and which calls may allocate memory.
#include "kernels/row_store.inl"

#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <new>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend/cpu.h"
#include "kernels/slow_growth.h"
#include "kernels/snapshot.inl"
#include "tests/support/batches.h"
#include "tests/support/checked_table.h"
#include "tests/support/test_secret.h"

namespace slotwise::test {
namespace {

// The CPU backend on a device that has so much memory for tables.
struct MeasuredBackend : CpuBackend {
  static std::size_t MemoryForTables(CpuQueue& /*queue*/) { return memory; }
  static std::size_t KeptBesideARow() { return beside; }
  struct TableBytes {
    void Set(std::size_t bytes) { counted = bytes; }
  };
  inline static std::size_t memory = SIZE_MAX;
  inline static std::size_t beside = 0;
  inline static std::size_t counted = 0;  // of the last table
};
using SmallStore = RowStore<MeasuredBackend>;

// Returns the most memory that this process has had.
std::size_t MostResidentBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::size_t>(usage.ru_maxrss) << 10;
}

class ARowStore : public ::testing::Test {
 protected:
  ARowStore() {
    MeasuredBackend::memory = SIZE_MAX;
    MeasuredBackend::beside = 0;
  }

  // Gives keys [first, first + count) rows.
  void Add(SmallStore& store, std::uint64_t first, std::uint32_t count) {
    std::vector<Key> keys(count);
    std::ranges::generate(keys, [&first] { return Key{first++}; });
    std::vector<RowIndex> rows(count);
    store.ReserveAdd(queue_, count);
    store.BeginAdd(queue_, keys.data(), body::Chosen{nullptr}, count, rows.data());
    EXPECT_EQ(store.FinishAdd(queue_, 0), count);
  }

  CpuQueue queue_{1};
};

TEST_F(ARowStore, HasNoRoomForMoreRowsThanItMayHave) {
  TableOptions options = MakeOptions(1);
  options.max_rows = 10;
  SmallStore store(queue_, options, kTestSecret, 0);
  EXPECT_GT(store.Usage().bytes, 100 * sizeof(float)) << "its memory comes in pieces, and is there for more";
  EXPECT_TRUE(store.HasRoomFor(10));
  EXPECT_FALSE(store.HasRoomFor(11));
  Add(store, 0, 4);
  EXPECT_TRUE(store.HasRoomFor(6));
  EXPECT_FALSE(store.HasRoomFor(7));
}

TEST_F(ARowStore, HasNoRoomForMoreRowsThanItsRankMayHave) {
  SmallStore store(queue_, MakeOptions(1), kTestSecret, 0, /*max_rows=*/10);
  EXPECT_EQ(store.max_rows(), 10u);
  EXPECT_TRUE(store.HasRoomFor(10));
  EXPECT_FALSE(store.HasRoomFor(11));
}

TEST_F(ARowStore, PutsKeysWhereItsSecretSays) {
  SmallStore store(queue_, MakeOptions(1), kTestSecret, 0);
  const body::PlaceHash hash_of(kTestSecret.low(), kTestSecret.high());
  EXPECT_EQ(store.hash_table().HashOf(Key{5}), hash_of(5));
  store.MakeRoomFor(queue_, 100'000);
  EXPECT_EQ(store.hash_table().HashOf(Key{5}), hash_of(5)) << "the table that it has grown to";
}

TEST_F(ARowStore, GrowsIntoNoMemoryThatBatchesNeed) {
  SmallStore store(queue_, MakeOptions(64), kTestSecret, 0);
  constexpr std::uint32_t kMore = 100'000;
  constexpr std::size_t kBytesOfRows = std::size_t{kMore} * 64 * sizeof(float);
  Add(store, 0, 10);
  const ShardUsage before = store.Usage();

  MeasuredBackend::memory = kBytesOfRows / 2;
  EXPECT_THROW(store.MakeRoomFor(queue_, kMore), std::bad_alloc);
  EXPECT_FALSE(store.HasRoomFor(kMore));
  EXPECT_EQ(store.Usage().rows, before.rows);

  MeasuredBackend::memory = kBytesOfRows;
  store.MakeRoomFor(queue_, kMore);
  EXPECT_TRUE(store.HasRoomFor(kMore));
  EXPECT_LE(store.values().stride * kMore, store.Usage().bytes);
  EXPECT_LT(store.Usage().bytes, before.bytes + 2 * kBytesOfRows)
      << "not ahead, where there is no more to take";
  Add(store, 10, kMore);
}

// Behind the values it would make a record begin where a GPU does not load four floats at once.
TEST_F(ARowStore, KeepsTheStateThatARowSharesBesideItsRecord) {
  for (const DataType type : EveryKind<DataType>()) {
    for (const std::uint32_t dim : {1, 5, 32, 128}) {
      TableOptions options = MakeOptions(dim, Combiner::kSum, OptimizerKind::kRowWiseAdaGrad);
      options.row_dtype = type;
      SmallStore store(queue_, options, kTestSecret, 0);
      Add(store, 0, 2000);
      const body::RowsRef rows = store.values();
      EXPECT_EQ(rows.stride, dim * BytesOf(type));
      EXPECT_EQ(rows.floats, dim + 1);
      for (const std::uint32_t row : {0, 1, 1999}) {
        EXPECT_EQ(rows.Record(RowIndex{row}), rows.records + std::size_t{row} * rows.stride);
        EXPECT_EQ(rows.Shared(RowIndex{row}), rows.shared + row);
        EXPECT_EQ(*rows.Shared(RowIndex{row}), 0.1F) << "initial_accumulator";
        EXPECT_EQ(rows.Floats(RowIndex{row}).Read(dim), 0.1F);
      }
    }
  }
}

TEST_F(ARowStore, KeepsOtherStateInTheRecord) {
  SmallStore store(queue_, MakeOptions(1, Combiner::kSum, OptimizerKind::kAdaGrad), kTestSecret, 0);
  EXPECT_EQ(store.values().shared, nullptr);
  EXPECT_EQ(store.values().stride, 8u);
}

TEST_F(ARowStore, KeepsStateWhereAGpuLoadsFourFloatsAtOnceBehindHalves) {
  for (const std::uint32_t dim : {1, 4, 5, 8, 12, 128}) {
    for (const DataType type : {DataType::kFloat16, DataType::kBFloat16}) {
      TableOptions options = MakeOptions(dim, Combiner::kSum, OptimizerKind::kAdam);
      options.row_dtype = type;
      SmallStore store(queue_, options, kTestSecret, 0);
      const body::RowsRef rows = store.values();
      EXPECT_EQ(rows.state_at % 16, 0u);
      EXPECT_GE(rows.state_at, 2 * dim);
      EXPECT_LT(rows.state_at, 2 * dim + 16);
      EXPECT_EQ(rows.stride, rows.state_at + 8 * dim);
      if (dim % 4 == 0) {
        EXPECT_EQ(rows.stride % 16, 0u);
      }
      options.optimizer.kind = OptimizerKind::kSgd;
      EXPECT_EQ(SmallStore(queue_, options, kTestSecret, 0).values().stride, 2 * dim)
          << "and nothing besides";
    }
  }
}

TEST_F(ARowStore, CountsWhatRowsShareAmongItsMemory) {
  constexpr std::uint32_t kRows = 4'000'000;
  TableOptions options = MakeOptions(1, Combiner::kSum, OptimizerKind::kRowWiseAdaGrad);
  options.max_rows = 4 * kRows;
  SmallStore store(queue_, options, kTestSecret, kRows);
  const std::size_t cells = store.Usage().cells * sizeof(body::Cell);
  EXPECT_GE(store.Usage().bytes, cells + std::size_t{kRows} * 2 * sizeof(float));
  MeasuredBackend::memory = std::size_t{kRows} * 2 * sizeof(float) - 1;
  EXPECT_THROW(store.MakeRoomFor(queue_, 2 * kRows + 1'000'000), std::bad_alloc);
  EXPECT_TRUE(store.HasRoomFor(kRows));
}

TEST_F(ARowStore, RehashesIntoNoMemoryThatBatchesNeed) {
  SmallStore store(queue_, MakeOptions(1), kTestSecret, 0);
  constexpr std::uint32_t kMore = 1'000'000;
  MeasuredBackend::memory = kMore * sizeof(body::Cell);  // at most a load of 1
  EXPECT_THROW(store.MakeRoomFor(queue_, kMore), std::bad_alloc);
}

// The old cells are there until the keys have moved.
TEST_F(ARowStore, RehashesOnlyWhereOldAndNewCellsFit) {
  SmallStore store(queue_, MakeOptions(1), kTestSecret, 100'000);
  const std::uint64_t cells = store.Usage().cells;
  const std::size_t new_bytes = (2 * cells + 1) * sizeof(body::Cell);
  MeasuredBackend::memory = new_bytes - 1;
  EXPECT_THROW(store.MakeRoomFor(queue_, cells / 2 + 1), std::bad_alloc);
  EXPECT_EQ(store.Usage().cells, cells);
  MeasuredBackend::memory = new_bytes;
  store.MakeRoomFor(queue_, cells / 2 + 1);
  EXPECT_EQ(store.Usage().cells, 2 * cells);
}

TEST_F(ARowStore, TakesMemoryForItsCellsAndForListsOfItsRows) {
  constexpr std::uint32_t kRows = 1'000'000;
  constexpr std::size_t kListed = 100;  // bytes a row
  ShareHostMemory(2);                   // what is left of a share does not go by what other processes take
  KeepFromTables(std::size_t{512} << 20, kListed);
  const std::size_t before = HostMemoryForTables();
  ASSERT_GT(before, std::size_t{256} << 20) << "this test wants a machine with more memory";
  {
    RowStore<CpuBackend> store(queue_, MakeOptions(1), kTestSecret, kRows);
    EXPECT_GE(before - HostMemoryForTables(), store.Usage().bytes + kListed * kRows);
  }
  EXPECT_EQ(HostMemoryForTables(), before);
  ShareHostMemory(1);
  EXPECT_EQ(KeptBesideARow(), 0U);
}

// Memory comes in pieces of half a million short rows, of which a small table uses few.
TEST_F(ARowStore, SetsListsAsideOfTheRowsThatItUses) {
  MeasuredBackend::beside = 100;
  SmallStore store(queue_, MakeOptions(1), kTestSecret, 0);
  EXPECT_LT(MeasuredBackend::counted, std::size_t{1} << 20) << "though its memory is there for more rows";
  constexpr std::uint32_t kRows = 200'000;
  store.MakeRoomFor(queue_, kRows);
  EXPECT_TRUE(store.HasRoomFor(kRows));
  const std::size_t cells = store.hash_table().Cells() * sizeof(body::Cell);
  EXPECT_GE(MeasuredBackend::counted, cells + 100 * kRows);
  EXPECT_LT(MeasuredBackend::counted, cells + 150 * kRows);
  Add(store, 0, kRows);

  MeasuredBackend::memory = 100 * 99'999;
  EXPECT_FALSE(store.HasRoomFor(200'000));
  EXPECT_THROW(store.MakeRoomFor(queue_, 200'000), std::bad_alloc);
  EXPECT_FALSE(store.HasRoomFor(200'000)) << "there are rows and cells for them, and no lists";
  EXPECT_TRUE(store.HasRoomFor(1000)) << "what was set aside ahead";
}

TEST(CopyMemory, GivesBackWhatIsMoreThanItsShareOfABudget) {
  CpuQueue queue(1);
  CopyMemory<CpuBackend> memory;
  memory.Reserve(queue, 1000);
  const float* const data = memory.data();
  memory.Reserve(queue, 900);
  EXPECT_EQ(memory.data(), data) << "much the same";
  EXPECT_EQ(memory.floats(), 1000U);
  memory.Reserve(queue, 800);
  EXPECT_EQ(memory.floats(), 800U);
  memory.Reserve(queue, 0);
  EXPECT_EQ(memory.floats(), 0U);
  memory.Reserve(queue, 10);
  EXPECT_EQ(memory.floats(), 10U);
}

TEST_F(ARowStore, TakesNothingAheadWhereGrowthIsExact) {
  MeasuredBackend::beside = 100;
  constexpr std::uint32_t kRows = 4'000'000;
  TableOptions options = MakeOptions(1);
  options.max_rows = 2 * kRows;
  const auto bytes_and_lists = [&] {
    SmallStore store(queue_, options, kTestSecret, 0);
    store.MakeRoomFor(queue_, kRows);
    const std::size_t cells = store.hash_table().Cells() * sizeof(body::Cell);
    return std::pair(store.Usage().bytes - cells, MeasuredBackend::counted - cells);
  };
  const auto ahead = bytes_and_lists();
  const ExactGrowth exact;
  const auto no_more = bytes_and_lists();
  EXPECT_EQ(no_more.second, std::size_t{100} * kRows);
  EXPECT_LT(no_more.first, std::size_t{4} * kRows + kLargePage);
  EXPECT_GT(ahead.second, no_more.second);
  EXPECT_GT(ahead.first, no_more.first);
}

// Repeated keys are counted in a table of their own, beside one that may be full.
TEST_F(ARowStore, CountsDistinctKeysInFewCellsWhateverItsOwnLoad) {
  TableOptions options = MakeOptions(1);
  options.max_load = TableOptions::kLeastMaxLoad;
  SmallStore store(queue_, options, kTestSecret, 0);
  constexpr std::uint32_t kKeys = 900'000;
  std::vector<Key> keys(kKeys);
  std::vector<std::uint32_t> places(kKeys);
  for (std::uint32_t i = 0; i < kKeys; ++i) keys[i] = Key{places[i] = i};
  std::fill(keys.end() - 1000, keys.end(), Key{7});
  const std::size_t before = MostResidentBytes();
  EXPECT_EQ(store.CountDistinct(queue_, keys.data(), places.data(), kKeys), kKeys - 1000);
  EXPECT_LT(MostResidentBytes() - before, std::size_t{64} << 20) << "16 cells a key would be 256 MiB";
}

TEST_F(ARowStore, BeginsInNoMemoryThatBatchesNeed) {
  MeasuredBackend::memory = std::size_t{1} << 20;
  EXPECT_THROW(SmallStore(queue_, MakeOptions(64), kTestSecret, 100'000), std::bad_alloc);
  EXPECT_EQ(SmallStore(queue_, MakeOptions(64), kTestSecret, 1'000).rows(), 0u);
}

TEST_F(ARowStore, LeavesMemoryToOtherTables) {
  constexpr std::uint32_t kRows = 100'000;
  constexpr std::size_t kBytesOfRows = std::size_t{kRows} * 64 * sizeof(float);
  constexpr std::size_t kPiece = std::size_t{2} << 20;  // in which memory comes
  SmallStore store(queue_, MakeOptions(64), kTestSecret, kRows);
  const std::size_t cells = store.Usage().cells * sizeof(body::Cell);
  EXPECT_LT(store.Usage().bytes, cells + kBytesOfRows + kPiece) << "initial_rows, and no more";

  MeasuredBackend::memory = kBytesOfRows;
  Add(store, 0, kRows);
  const std::size_t before = store.Usage().bytes;
  store.MakeRoomFor(queue_, 100);
  EXPECT_LT(store.Usage().bytes, before + kBytesOfRows / 2 + kPiece) << "ahead, by half of what is left";
}

TEST_F(ARowStore, RemembersErasedRowsWhereThereIsNoMemoryForMore) {
  SmallStore store(queue_, MakeOptions(4), kTestSecret, 0);
  Add(store, 0, 1000);
  MeasuredBackend::memory = 0;
  const std::vector<Key> erased{Key{1}, Key{7}, Key{1'000'000}};
  store.ReserveErase(queue_, 3);
  EXPECT_EQ(store.Erase(queue_, erased.data(), 3), 2u);
  EXPECT_TRUE(store.HasRoomFor(2));
  EXPECT_EQ(store.rows(), 998u);
}

// A store whose hash table is slow to grow, and a map from its keys to their rows.
class AGrowingStore : public ARowStore {
 protected:
  AGrowingStore() : slow_(16), store_(queue_, MakeOptions(1), kTestSecret, 0) {}

  // Finds keys as a batch does.
  std::vector<RowIndex> Find(const std::vector<Key>& keys) {
    store_.GoOn(queue_);
    store_.Bring(queue_, keys.data(), static_cast<std::uint32_t>(keys.size()));
    std::vector<RowIndex> rows(keys.size());
    CpuBackend::ForEach(queue_, static_cast<std::uint32_t>(keys.size()),
                        body::FindRows{store_.hash_table(), keys.data(), rows.data()});
    return rows;
  }
  void AddKeys(const std::vector<Key>& keys) {
    const auto n = static_cast<std::uint32_t>(keys.size());
    for (const RowIndex row : Find(keys)) ASSERT_EQ(row, kNoRow);
    if (!store_.HasRoomFor(n)) {
      const std::uint64_t tables = store_.rehashes();
      store_.MakeRoomFor(queue_, n);
      surprises_ += store_.rehashes() - tables;
      store_.Bring(queue_, keys.data(), n);
    }
    ASSERT_TRUE(store_.HasRoomFor(n));
    std::vector<RowIndex> rows(n);
    store_.ReserveAdd(queue_, n);
    store_.BeginAdd(queue_, keys.data(), body::Chosen{nullptr}, n, rows.data());
    ASSERT_EQ(store_.FinishAdd(queue_, 0), n);
    for (std::uint32_t i = 0; i < n; ++i) rows_[keys[i]] = rows[i];
  }
  void EraseKeys(const std::vector<Key>& keys) {
    Find(keys);
    store_.ReserveErase(queue_, static_cast<std::uint32_t>(keys.size()));
    std::uint32_t erased = 0;
    for (const Key key : keys) erased += static_cast<std::uint32_t>(rows_.erase(key));
    EXPECT_EQ(store_.Erase(queue_, keys.data(), static_cast<std::uint32_t>(keys.size())), erased);
  }

  // Compares all cells with the map. Returns whether the table was in the middle of moving its keys.
  bool ExpectAllThere() {
    std::map<Key, RowIndex> seen;
    int parts = 0;
    store_.ForEachPart([&](const body::SomeCells& cells) {
      ++parts;
      for (std::uint64_t i = 0; i < cells.size(); ++i) {
        if (!cells.Live(i)) continue;
        EXPECT_TRUE(seen.emplace(cells.KeyAt(i), cells.RowAt(i)).second)
            << "twice: " << Value(cells.KeyAt(i));
      }
    });
    EXPECT_EQ(seen, rows_);
    EXPECT_EQ(store_.rows(), rows_.size());
    return parts == 2;
  }

  SlowGrowth slow_;
  SmallStore store_;
  std::map<Key, RowIndex> rows_;
  std::uint64_t surprises_ = 0;  // tables that a batch had to finish
};

std::vector<Key> KeysOf(std::uint64_t first, std::uint64_t count) {
  std::vector<Key> keys;
  for (std::uint64_t key = first; key < first + count; ++key) keys.push_back(Key{key});
  return keys;
}

// Grown tables, those of dead cells, and keys that come, go and come again in the middle of it.
TEST_F(AGrowingStore, HasEveryKeyOnceWhileKeysMove) {
  const std::uint64_t seed = Seed(3000);
  SCOPED_TRACE(SeedNote(seed));
  Random random(seed);
  int moving = 0;
  constexpr std::uint64_t kKeys = 20'000;
  for (int turn = 0; turn < 1500 && !HasFailure(); ++turn) {
    std::set<Key> drawn;
    for (std::uint64_t i = 1 + random.Below(60); i > 0; --i) {
      const std::uint64_t key = random.Below(kKeys);
      drawn.insert(Key{key == 0 ? body::kFree : key == 1 ? body::kFreeKeyIsHere : key});
    }
    if (random.OneIn(3)) {
      EraseKeys({drawn.begin(), drawn.end()});
    } else {
      std::erase_if(drawn, [&](Key key) { return rows_.contains(key); });
      AddKeys({drawn.begin(), drawn.end()});
    }
    moving += turn % 10 == 0 && ExpectAllThere();
    const std::vector<Key> some = KeysOf(random.Below(kKeys), 20);
    const std::vector<RowIndex> found = Find(some);
    for (std::size_t i = 0; i < some.size(); ++i) {
      const auto there = rows_.find(some[i]);
      EXPECT_EQ(found[i], there == rows_.end() ? kNoRow : there->second);
    }
  }
  EXPECT_GT(moving, 15) << "of 150 times";
  EXPECT_GT(store_.rehashes(), 4u);
}

// Growth keeps pace with new keys, so that no batch has to finish it.
TEST_F(AGrowingStore, IsReadyBeforeABatchFindsNoRoom) {
  AddKeys(KeysOf(0, 1000));
  surprises_ = 0;
  for (std::uint64_t next = 1000; next < 300'000; next += 20) AddKeys(KeysOf(next, 20));
  EXPECT_EQ(surprises_, 0u);
  EXPECT_GE(store_.Usage().cells, 600'000u);
  ExpectAllThere();
}

TEST_F(ARowStore, TakesTheNextHashTableWhenItIsFullAndAFewKeysMoreMeanwhile) {
  const SlowGrowth slow(16);
  SmallStore store(queue_, MakeOptions(1), kTestSecret, 1024);
  Add(store, 0, 1024);
  store.GoOn(queue_);
  const std::size_t bytes = store.Usage().bytes;
  EXPECT_EQ(store.Usage().cells, 2048U);
  MeasuredBackend::memory = (4096 + 1) * sizeof(body::Cell) - 1;
  EXPECT_THROW(store.MakeRoomFor(queue_, 1), std::bad_alloc);
  EXPECT_EQ(store.Usage().bytes, bytes);
  EXPECT_FALSE(store.HasRoomFor(1));
  MeasuredBackend::memory = SIZE_MAX;
  store.MakeRoomFor(queue_, 1);
  EXPECT_EQ(store.Usage().bytes, bytes + (4096 + 1) * sizeof(body::Cell));
  EXPECT_EQ(store.Usage().cells, 4096U) << "what it grows to";
  EXPECT_EQ(store.hash_table().mask + 1, 2048U);
  EXPECT_TRUE(store.HasRoomFor(128)) << "an eighth of 1024";
  EXPECT_FALSE(store.HasRoomFor(129));
  store.MakeRoomFor(queue_, 129);
  EXPECT_EQ(store.hash_table().mask + 1, 4096U);
}

TEST_F(ARowStore, GivesItsLastHashTableBackBeforeItRefusesRows) {
  const SlowGrowth slow(16);
  SmallStore store(queue_, MakeOptions(2048), kTestSecret, 1024);  // in pieces of 256 such rows
  Add(store, 0, 1000);
  const std::vector<Key> erased = KeysOf(0, 500);
  store.ReserveErase(queue_, 500);
  store.Erase(queue_, erased.data(), 500);
  const std::size_t bytes = store.Usage().bytes;
  store.MakeRoomFor(queue_, 100);
  Add(store, 1000, 100);  // as many cells again, because of the dead ones
  while (store.Usage().cells_to_move == 0) store.GoOn(queue_);
  EXPECT_EQ(store.Usage().bytes, bytes + (2048 + 1) * sizeof(body::Cell));
  MeasuredBackend::memory = 0;
  EXPECT_THROW(store.MakeRoomFor(queue_, 500), std::bad_alloc);
  EXPECT_EQ(store.Usage().cells_to_move, 0U);
  EXPECT_EQ(store.Usage().bytes, bytes);
  EXPECT_TRUE(store.HasRoomFor(400));
}

}  // namespace
}  // namespace slotwise::test
