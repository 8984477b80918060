// Tests the hash table's own promises: searches wrap and end, each key has one winner, and the mark of a free
// cell is a legal key, too.
#include "kernels/body/hash_table.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend/cpu.h"
#include "tests/support/batches.h"
#include "tests/support/test_secret.h"

namespace slotwise::body {
namespace {

using Atomics = CpuBackend::Atomics;

// Erases `keys` one by one: the rows set free, in their order.
std::vector<RowIndex> Erase(const HashTableRef& table, const std::vector<Key>& keys) {
  std::vector<RowIndex> erased(keys.size());
  const EraseKeys<Atomics> erase{table, keys.data(), erased.data()};
  std::uint32_t count = 0;
  for (std::uint32_t i = 0; i < keys.size(); ++i) {
    if (const auto outcome = erase(i)) erase.Number(i, outcome, count++);
  }
  erased.resize(count);
  return erased;
}

constexpr HashSecret kOtherSecret{0x0123'4567'89AB'CDEF, 0xFEDC'BA98'7654'3210};

// A table of `cells` cells, all free.
struct SmallTable {
  explicit SmallTable(std::uint64_t cells, const HashSecret& secret = test::kTestSecret)
      : memory(cells + 1), ref{memory.data(), cells - 1, PlaceHash(secret.low(), secret.high())} {
    for (std::uint64_t cell = 0; cell < ref.Cells(); ++cell) {
      FreeCells{ref.cells}(cell);
    }
  }

  HashTableRef::Claimed Add(std::uint64_t key, std::uint32_t row) {
    const auto claimed = ref.Claim<Atomics>(Key{key});
    if (claimed.added) {
      memory[claimed.cell].row = row;
    }
    return claimed;
  }
  RowIndex Find(std::uint64_t key) const { return ref.Find(Key{key}); }

  std::vector<Cell> memory;
  HashTableRef ref;
};

TEST(HashTable, FindsWhatWasAddedAndNothingElse) {
  SmallTable table(64);
  for (std::uint32_t i = 0; i < 20; ++i) {
    EXPECT_TRUE(table.Add(i * 1000, i).added);
  }
  for (std::uint32_t i = 0; i < 20; ++i) {
    EXPECT_EQ(table.Find(i * 1000), RowIndex{i});
    EXPECT_EQ(table.Find(i * 1000 + 1), kNoRow);
  }
}

TEST(HashTable, AddsAKeyOnce) {
  SmallTable table(16);
  const auto first = table.Add(5, 0);
  const auto second = table.Add(5, 1);
  EXPECT_TRUE(first.added);
  EXPECT_FALSE(second.added);
  EXPECT_EQ(second.cell, first.cell);
  EXPECT_EQ(table.Find(5), RowIndex{0});
}

TEST(HashTable, ASearchLooksAtACacheLineFirstAndAtEveryCellOnce) {
  for (const std::uint64_t cells : {4, 8, 1024}) {
    const SmallTable table(cells);
    for (std::uint64_t key = 0; key < 100; ++key) {
      std::vector<bool> seen(cells, false);
      auto search = table.ref.SearchFor(table.ref.HashOf(Key{key}));
      const std::uint64_t line = search.cell / 4;
      for (std::uint64_t pair = 0; pair < cells / 2; ++pair, search.Next()) {
        ASSERT_EQ(search.cell % 2, 0u);
        ASSERT_LT(search.cell, cells);
        ASSERT_FALSE(seen[search.cell]) << "key " << key << " in " << cells << " cells";
        seen[search.cell] = true;
        if (pair < 2) {
          ASSERT_EQ(search.cell / 4, line);
        }
      }
    }
  }
}

TEST(HashTable, HoldsKeysThatBeginAtOneCellUntilACellIsLeft) {
  SmallTable table(64);
  const auto keys = test::KeysOfPlace(test::kTestSecret, 63, 7, 100);
  const auto key = [&](std::uint64_t i) { return keys[i]; };
  for (std::uint32_t i = 0; i < 63; ++i) EXPECT_TRUE(table.Add(key(i), i).added);
  for (std::uint32_t i = 0; i < 63; ++i) {
    EXPECT_EQ(table.Find(key(i)), RowIndex{i});
    EXPECT_EQ(table.ref.KeyAt(table.ref.CellOf(Key{key(i)})), Key{key(i)});
  }
  EXPECT_EQ(table.Find(key(99)), kNoRow);
  EXPECT_EQ(table.ref.CellOf(Key{key(99)}), table.ref.Cells());
}

TEST(HashTable, HoldsTheKeyThatMarksFreeCellsAndTheOneThatStandsForIt) {
  SmallTable table(4);
  EXPECT_EQ(table.Find(kFree), kNoRow);
  EXPECT_EQ(table.Find(kFreeKeyIsHere), kNoRow);
  EXPECT_TRUE(table.Add(kFree, 0).added);
  EXPECT_EQ(table.Find(kFree), RowIndex{0});
  EXPECT_EQ(table.Find(kFreeKeyIsHere), kNoRow);
  EXPECT_TRUE(table.Add(kFreeKeyIsHere, 1).added);
  EXPECT_FALSE(table.Add(kFree, 2).added);
  EXPECT_FALSE(table.Add(kFreeKeyIsHere, 2).added);
  EXPECT_EQ(table.Find(kFree), RowIndex{0});
  EXPECT_EQ(table.Find(kFreeKeyIsHere), RowIndex{1});

  std::vector<std::uint64_t> keys;
  for (std::uint64_t cell = 0; cell < table.ref.Cells(); ++cell) {
    if (table.ref.Live(cell)) {
      keys.push_back(Value(table.ref.KeyAt(cell)));
    }
  }
  EXPECT_EQ(keys.size(), 2u);
  EXPECT_NE(std::find(keys.begin(), keys.end(), kFree), keys.end());
  EXPECT_NE(std::find(keys.begin(), keys.end(), kFreeKeyIsHere), keys.end());
}

// Erasing leaves a dead cell: searches go on through it, the key is absent, and one claimer revives it.
TEST(HashTable, SearchesGoOnThroughErasedKeys) {
  SmallTable table(8);
  std::vector<Key> keys;
  for (const std::uint64_t key : test::KeysOfPlace(test::kTestSecret, 7, 5, 4)) {  // one search
    table.Add(key, static_cast<std::uint32_t>(keys.size()));
    keys.push_back(Key{key});
  }
  EXPECT_EQ(Erase(table.ref, {keys[1], keys[1], keys[0], Key{kFree}}),
            (std::vector{RowIndex{1}, RowIndex{0}}));
  EXPECT_EQ(table.ref.Find(keys[0]), kNoRow);
  EXPECT_EQ(table.ref.Find(keys[1]), kNoRow);
  EXPECT_EQ(table.ref.Find(keys[3]), RowIndex{3});

  const auto again = table.ref.Claim<Atomics>(keys[1]);
  EXPECT_FALSE(again.added);
  EXPECT_TRUE(table.ref.Revive<Atomics>(again.cell));
  EXPECT_FALSE(table.ref.Revive<Atomics>(again.cell));
}

TEST(HashTable, PutsKeysElsewhereUnderAnotherSecret) {
  constexpr std::uint64_t kKeys = 10'000;
  const SmallTable one(1 << 20);
  const SmallTable other(1 << 20, kOtherSecret);
  const SmallTable mirrored(1 << 20, HashSecret(test::kTestSecret.high(), test::kTestSecret.low()));
  int same_cell = 0;
  int same_step = 0;
  for (std::uint64_t key = 0; key < kKeys; ++key) {
    const auto search = one.ref.SearchFor(one.ref.HashOf(Key{key}));
    for (const SmallTable* table : {&other, &mirrored}) {
      const auto elsewhere = table->ref.SearchFor(table->ref.HashOf(Key{key}));
      same_cell += search.cell == elsewhere.cell ? 1 : 0;
      same_step += search.step % (1 << 20) == elsewhere.step % (1 << 20) ? 1 : 0;
    }
  }
  EXPECT_LT(same_cell, 10) << "of 2^19 pairs of cells";
  EXPECT_LT(same_step, 10) << "of 2^17 odd numbers of lines";
}

// Of the keys that begin in one line, as many go on to each other line.
TEST(HashTable, StepsSayNothingOfPlaces) {
  constexpr std::uint64_t kLines = 64;
  constexpr std::uint64_t kKeys = 1 << 20;
  const SmallTable table(4 * kLines);
  std::vector<std::vector<int>> keys_of(kLines, std::vector<int>(kLines));  // [first line][step in lines]
  for (std::uint64_t key = 0; key < kKeys; ++key) {
    const auto search = table.ref.SearchFor(table.ref.HashOf(Key{key}));
    ++keys_of[search.cell / 4][search.step / 4 % kLines];
  }
  constexpr double kExpected = 2 * static_cast<double>(kKeys) / (kLines * kLines);
  for (const auto& of_line : keys_of) {
    for (std::uint64_t step = 0; step < kLines; ++step) {
      const bool odd = step % 2 == 1;
      EXPECT_NEAR(of_line[step], odd ? kExpected : 0, odd ? 7 * std::sqrt(kExpected) : 0);
    }
  }
}

// Pairs of cells that all searches for keys of a table read, and the longest one.
struct Probes {
  std::uint64_t all = 0;
  std::uint64_t longest = 0;
};

// Fills half of a table that is made under a secret that the chooser of `keys` does not know.
Probes ProbesOf(const std::vector<std::uint64_t>& keys) {
  SmallTable table(std::bit_ceil(2 * keys.size()), kOtherSecret);
  for (std::uint32_t i = 0; i < keys.size(); ++i) EXPECT_TRUE(table.Add(keys[i], i).added);
  Probes probes;
  for (const std::uint64_t key : keys) {
    std::uint64_t pairs = 1;
    auto search = table.ref.SearchFor(table.ref.HashOf(Key{key}));
    while (table.memory[search.cell].key != key && table.memory[search.cell + 1].key != key) {
      search.Next();
      ++pairs;
    }
    probes.all += pairs;
    probes.longest = std::max(probes.longest, pairs);
  }
  return probes;
}

TEST(HashTable, SearchesForCraftedKeysAreNoLongerThanForOthers) {
  constexpr std::uint64_t kKeys = 1 << 14;
  const auto crafted = [](auto hash_of) {
    std::vector<std::uint64_t> keys(kKeys);
    for (std::uint64_t i = 0; i < kKeys; ++i) keys[i] = hash_of(i);
    return ProbesOf(keys);
  };
  test::Random random(130);
  const Probes others = crafted([&](std::uint64_t) { return random.Bits(); });
  EXPECT_LT(others.all, 2 * kKeys);
  EXPECT_LT(others.longest, 20u);
  const auto expect_no_longer = [&](const char* what, const Probes& probes) {
    EXPECT_LT(static_cast<double>(probes.all), 1.1 * static_cast<double>(others.all)) << what;
    EXPECT_LT(probes.longest, 2 * others.longest) << what;
  };
  expect_no_longer("alike but for mix64's top bits",
                   crafted([](auto i) { return test::KeyOfHash(i << 50 | 5); }));
  expect_no_longer("alike in mix64's low half", crafted([](auto i) { return test::KeyOfHash(i << 32 | 5); }));
  expect_no_longer("alike in mix64's high half",
                   crafted([](auto i) { return test::KeyOfHash(std::uint64_t{5} << 32 | i); }));
  expect_no_longer("neighbours", crafted([](auto i) { return i; }));
  expect_no_longer("multiples of a large power of two", crafted([](auto i) { return i << 50; }));
}

// Keys of one and the same search, crafted with a table's secret, crowd in it; without it they do not.
TEST(HashTable, SearchesAreLongForKeysThatWereCraftedUnderTheSecretAlone) {
  constexpr std::uint64_t kCellAndStep = 0x7E'0000'01FE;  // all bits of them that count in 512 cells
  EXPECT_EQ(ProbesOf(test::KeysOfPlace(kOtherSecret, kCellAndStep, 4, 256)).longest, 128u);
  EXPECT_LT(ProbesOf(test::KeysOfPlace(test::kTestSecret, kCellAndStep, 4, 256)).longest, 20u);
}

TEST(HashTable, MovingKeysKeepsEveryRow) {
  SmallTable small(64);
  SmallTable large(256);
  std::vector<std::uint64_t> keys = test::SpecialKeys();
  for (std::uint32_t i = 0; i < keys.size(); ++i) {
    ASSERT_TRUE(small.Add(keys[i], i).added);
  }
  const Key dead{987'654'321};
  ASSERT_TRUE(small.Add(Value(dead), 77).added);
  EXPECT_EQ(Erase(small.ref, {dead}), std::vector{RowIndex{77}});
  const MoveKeys<Atomics> move{small.ref, large.ref, 0};
  for (std::uint64_t cell = 0; cell < small.ref.Cells(); ++cell) {
    move(cell);
  }
  for (std::uint32_t i = 0; i < keys.size(); ++i) {
    EXPECT_EQ(large.Find(keys[i]), RowIndex{i});
  }
  EXPECT_EQ(large.ref.CellOf(dead), large.ref.Cells()) << "a dead cell was copied";
}

TEST(HashTable, HasOneWinnerAKeyHoweverManyThreadsRace) {
  constexpr int kThreads = 4;
  constexpr std::uint64_t kKeys = 2000;
  for (int round = 0; round < 10; ++round) {
    SmallTable table(4096);
    std::atomic<int> winners = 0;
    std::atomic<int> waiting = kThreads;
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        --waiting;
        while (waiting > 0) {
          std::this_thread::yield();
        }
        int won = 0;
        for (std::uint64_t key = 0; key < kKeys; ++key) {
          won += table.ref.Claim<Atomics>(Key{key}).added ? 1 : 0;
        }
        winners += won;
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    EXPECT_EQ(winners, static_cast<int>(kKeys));
  }
}

}  // namespace
}  // namespace slotwise::body
