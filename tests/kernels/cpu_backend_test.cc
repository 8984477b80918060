// Tests the CPU backend's algorithms against the standard library's, for sizes around every cut and for any
// number of threads.
#include <malloc.h>
#include <sys/mman.h>
#include <tbb/global_control.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend/cpu.h"
#include "kernels/backend/cpu_hash.h"
#include "kernels/backend/cpu_memory.h"
#include "kernels/backend/host_memory.h"
#include "kernels/body/hash_table.h"
#include "tests/support/batches.h"

namespace slotwise {
namespace {

class CpuAlgorithms : public ::testing::TestWithParam<int> {
 protected:
  // oneTBB would run no more threads than there are cores.
  tbb::global_control many_threads_{tbb::global_control::max_allowed_parallelism, 8};
  CpuQueue queue_{GetParam()};
  test::Random random_{130};
};
INSTANTIATE_TEST_SUITE_P(Threads, CpuAlgorithms, ::testing::Values(1, 2, 3, 7),
                         [](const auto& test) { return "On" + std::to_string(test.param); });

const std::vector<std::uint32_t> kSizes{0, 1, 2, 31, 4095, 4096, 4097, 8192, 8193, 50'000, 123'457};

std::vector<std::uint32_t> RandomWords(test::Random& random, std::uint32_t n, std::uint64_t bound) {
  std::vector<std::uint32_t> words(n);
  for (auto& word : words) {
    word = static_cast<std::uint32_t>(random.Below(bound));
  }
  return words;
}

TEST_P(CpuAlgorithms, ForEachVisitsEachIndexOnce) {
  for (const std::uint32_t n : kSizes) {
    std::vector<std::atomic<int>> visits(n);
    CpuBackend::ForEach(queue_, n, [&](std::uint32_t i) { ++visits[i]; });
    for (const std::uint32_t dim : {1, 64, 4096}) {
      CpuBackend::ForEachTile(queue_, n, dim, [&](CpuTile, std::uint32_t i) { ++visits[i]; });
      CpuBackend::ForEachRun(queue_, n, dim, [&](CpuTile, std::uint32_t begin, std::uint32_t end) {
        for (std::uint32_t i = begin; i < end; ++i) ++visits[i];
      });
    }
    EXPECT_TRUE(std::all_of(visits.begin(), visits.end(), [](const auto& count) { return count == 7; })) << n;
  }
}

// Numbers every third index, and remembers who got which number.
struct NumberThirds {
  std::atomic<std::uint32_t>* owner_of;  // [numbers]
  bool operator()(std::uint32_t i) const { return i % 3 == 0; }
  void Number(std::uint32_t i, bool /*outcome*/, std::uint32_t number) const { owner_of[number] += i + 1; }
};

TEST_P(CpuAlgorithms, ForEachNumberedGivesEachNumberOnce) {
  for (const std::uint32_t n : kSizes) {
    const std::uint32_t wanted = (n + 2) / 3;
    std::vector<std::atomic<std::uint32_t>> owner_of(wanted);
    EXPECT_EQ(CpuBackend::ForEachNumbered(queue_, n, NumberThirds{owner_of.data()}), wanted);
    std::vector<std::uint32_t> owners(owner_of.begin(), owner_of.end());
    std::ranges::sort(owners);
    for (std::uint32_t i = 0; i < wanted; ++i) ASSERT_EQ(owners[i], 3 * i + 1) << n;
  }
}

TEST_P(CpuAlgorithms, ExclusiveScanIsTheStandardLibrarysAndMayRunInPlace) {
  for (const std::uint32_t n : kSizes) {
    const std::vector<std::uint32_t> in = RandomWords(random_, n, 100);
    std::vector<std::uint32_t> expected(n + 1, 0);
    std::partial_sum(in.begin(), in.end(), expected.begin() + 1);
    std::vector<std::uint32_t> out(n + 1);
    CpuBackend::ExclusiveScan(queue_, in.data(), n, out.data());
    EXPECT_EQ(out, expected);
    std::vector<std::uint32_t> in_place = in;
    in_place.push_back(77);
    CpuBackend::ExclusiveScan(queue_, in_place.data(), n, in_place.data());
    EXPECT_EQ(in_place, expected);
  }
}

TEST_P(CpuAlgorithms, SelectKeepsTheOrder) {
  for (const std::uint32_t n : kSizes) {
    for (const std::uint64_t one_in : {1, 2, 1000}) {
      std::vector<Key> keys;
      for (const std::uint32_t word : RandomWords(random_, n, 1000)) {
        keys.push_back(Key{word});
      }
      const auto keep = [&](Key key) { return Value(key) % one_in == 0; };
      std::vector<Key> expected;
      std::vector<std::uint32_t> expected_indices;
      for (std::uint32_t i = 0; i < n; ++i) {
        if (keep(keys[i])) {
          expected.push_back(keys[i]);
          expected_indices.push_back(i);
        }
      }
      std::vector<Key> kept(n);
      std::uint32_t count = 0;
      CpuBackend::SelectKeys(queue_, keys.data(), n, kept.data(), &count, keep);
      kept.resize(count);
      EXPECT_EQ(kept, expected);
      std::vector<std::uint32_t> indices(n);
      CpuBackend::SelectIndices(queue_, n, indices.data(), &count,
                                [&](std::uint32_t i) { return keep(keys[i]); });
      indices.resize(count);
      EXPECT_EQ(indices, expected_indices);
    }
  }
}

TEST_P(CpuAlgorithms, SortPairsIsStable) {
  for (const std::uint32_t n : kSizes) {
    for (const std::uint32_t bits : {1, 10, 11, 12, 22, 23, 32}) {
      std::vector<std::uint32_t> keys = RandomWords(random_, n, std::uint64_t{1} << bits);
      std::vector<std::uint32_t> values(n);
      std::iota(values.begin(), values.end(), 0);
      std::vector<std::uint32_t> order = values;
      std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return keys[a] < keys[b]; });
      std::vector<std::uint32_t> expected_keys(n);
      std::transform(order.begin(), order.end(), expected_keys.begin(), [&](auto i) { return keys[i]; });

      std::vector<std::uint32_t> other_keys(n);
      std::vector<std::uint32_t> other_values(n);
      PairBuffers pairs{{keys.data(), other_keys.data()}, {values.data(), other_values.data()}};
      CpuBackend::SortPairs(queue_, pairs, n, bits);
      const std::vector<std::uint32_t> sorted(pairs.keys[pairs.current], pairs.keys[pairs.current] + n);
      const std::vector<std::uint32_t> moved(pairs.values[pairs.current], pairs.values[pairs.current] + n);
      ASSERT_EQ(sorted, expected_keys) << n << " pairs of " << bits << " bits";
      ASSERT_EQ(moved, order) << n << " pairs of " << bits << " bits";
    }
  }
}

TEST_P(CpuAlgorithms, SumAddsModulo2To64) {
  for (const std::uint32_t n : kSizes) {
    std::uint64_t low = 0;
    for (std::uint64_t i = 0; i < n; ++i) {
      low += i * 0x9E3779B97F4A7C15;
    }
    const DigestSums sums = CpuBackend::Sum(queue_, n, [](std::uint64_t i) {
      return DigestSums{i * 0x9E3779B97F4A7C15, 0xFFFF'FFFF'FFFF'FFFF};
    });
    EXPECT_EQ(sums.low, low);
    EXPECT_EQ(sums.high, std::uint64_t{0} - n);
  }
}

// Remembers how often each index was visited, and checks the hashes that it is given.
struct CheckHashes {
  body::HashTableRef table;
  const Key* keys;
  std::atomic<int>* prefetched;  // [keys]
  std::atomic<int>* visits;      // [keys]

  static constexpr std::uint32_t kAhead = 24;
  const body::HashTableRef& searched() const { return table; }
  Key KeyOf(std::uint32_t i) const { return keys[i]; }
  void Prefetch(std::uint32_t i, std::uint64_t hash) const {
    if (visits[i] == 0 && hash == table.HashOf(keys[i])) ++prefetched[i];
  }
  void operator()(std::uint32_t i, std::uint64_t hash) const {
    if (prefetched[i] == 1 && hash == table.HashOf(keys[i])) ++visits[i];
  }
  void operator()(std::uint32_t) const {}
};

TEST_P(CpuAlgorithms, SearchesAreGivenTheHashesOfTheirKeys) {
  const body::HashTableRef table{nullptr, 0, body::PlaceHash(1, 2)};
  for (const std::uint32_t n : {0, 1, 7, 8, 23, 24, 25, 47, 48, 49, 4096, 4097, 50'000}) {
    std::vector<Key> keys(n);
    for (Key& key : keys) key = Key{random_.Bits()};
    std::vector<std::atomic<int>> prefetched(n);
    std::vector<std::atomic<int>> visits(n);
    CpuBackend::ForEach(queue_, n, CheckHashes{table, keys.data(), prefetched.data(), visits.data()});
    EXPECT_TRUE(std::ranges::all_of(visits, [](const auto& count) { return count == 1; })) << n;
  }
}

TEST_P(CpuAlgorithms, AskReturnsWhatTheFunctionDoes) {
  EXPECT_EQ(CpuBackend::Ask(queue_, [] { return 5u; }), 5u);
}

TEST(HashKeys, IsTheHashOfEachKey) {
  test::Random random(131);
  const body::PlaceHash hash_of(random.Bits(), random.Bits());
  for (std::size_t n = 0; n < 70; ++n) {
    std::vector<Key> keys(n);
    for (Key& key : keys) key = Key{random.Bits()};
    std::vector<std::uint64_t> hashes(n);
    HashKeys(hash_of, keys.data(), n, hashes.data());
    for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(hashes[i], hash_of(Value(keys[i])));
  }
}

TEST_P(CpuAlgorithms, GrowingMemoryKeepsItsContents) {
  CpuGrowing<float> memory(queue_, 3'000'000);
  memory.Grow(1000);
  const float* place = memory.data();
  std::iota(memory.data(), memory.data() + 1000, 0.0F);
  memory.Grow(2'500'000);
  EXPECT_GE(memory.size(), 2'500'000u);
  EXPECT_EQ(memory.data(), place);
  EXPECT_EQ(memory.data()[999], 999.0F);
  memory.data()[2'499'999] = 1.0F;
  EXPECT_THROW(memory.Grow(30'000'000), std::bad_alloc);
  EXPECT_EQ(memory.data()[999], 999.0F);
}

// The sizes are a part of the first piece, all of it, and several pieces.
TEST_P(CpuAlgorithms, GrowingMemoryKeepsItsContentsInALongerRange) {
  for (const std::size_t size : {0U, 1000U, 500'000U, 2'500'000U}) {
    SCOPED_TRACE(size);
    CpuGrowing<float> memory(queue_, std::max<std::size_t>(size, 1));
    for (std::size_t n = 1000; n < size; n *= 3) memory.Grow(n);
    memory.Grow(size);
    const std::size_t had = memory.size();
    std::iota(memory.data(), memory.data() + size, 0.0F);
    const std::size_t before = ResidentBytes();
    memory.Extend(queue_, 20'000'000);
    EXPECT_EQ(memory.size(), had);
    EXPECT_LT(ResidentBytes(), before + (std::size_t{3} << 20)) << "pages are moved, not copied";
    for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(memory.data()[i], static_cast<float>(i));
    memory.Grow(19'000'000);
    for (std::size_t i = size; i < had; ++i) ASSERT_EQ(memory.data()[i], 0.0F);
    memory.data()[18'999'999] = 1.0F;
    for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(memory.data()[i], static_cast<float>(i));
    const float* const place = memory.data();
    memory.Extend(queue_, 5);
    EXPECT_EQ(memory.data(), place) << "it is long enough";
    EXPECT_THROW(memory.Grow(200'000'000), std::bad_alloc);
  }
}

TEST_P(CpuAlgorithms, AMappingForEachPieceMovesToo) {
  CpuGrowing<float> memory(queue_, 4'000'000);
  constexpr std::size_t kPiece = kLargePage / sizeof(float);
  for (std::size_t piece = 1; piece <= 7; ++piece) {
    memory.Grow(piece * kPiece);
    std::fill_n(memory.data() + (piece - 1) * kPiece, kPiece, static_cast<float>(piece));
    // Another advice makes another mapping.
    madvise(memory.data() + (piece - 1) * kPiece, kLargePage, piece % 2 == 0 ? MADV_RANDOM : MADV_NORMAL);
  }
  memory.Extend(queue_, 40'000'000);
  for (std::size_t i = 0; i < 7 * kPiece; ++i) {
    const std::size_t piece = i / kPiece + 1;
    ASSERT_EQ(memory.data()[i], static_cast<float>(piece)) << i;
  }
  memory.Grow(30'000'000);
  memory.data()[29'999'999] = 1.0F;
}

// Messages make the heap keep what is freed (wire/freed_memory.h), and small blocks lie between arrays.
TEST(CpuScratch, GoesBackToTheSystemThoughBlocksBehindItLiveOn) {
  const auto keep_freed_blocks_of = [](int kib) {
    mallopt(M_MMAP_THRESHOLD, kib << 10);
    mallopt(M_TRIM_THRESHOLD, kib << 11);
  };
  keep_freed_blocks_of(31 << 10);
  CpuQueue queue(1);
  const std::size_t before = ResidentBytes();
  for (const std::size_t kib : {200, 3000}) {
    std::vector<CpuScratch<std::byte>> arrays(64);
    std::vector<std::unique_ptr<std::byte[]>> blocks;
    for (auto& array : arrays) {
      std::ranges::fill_n(array.Reserve(queue, kib << 10), static_cast<std::ptrdiff_t>(kib << 10),
                          std::byte{1});
      blocks.push_back(std::make_unique<std::byte[]>(1000));
    }
    EXPECT_GE(ResidentBytes(), before + ((64 * kib) << 10));
    arrays.clear();
    EXPECT_LT(ResidentBytes(), before + (std::size_t{2} << 20)) << 64 << " arrays of " << kib << " KiB";
  }
  keep_freed_blocks_of(128);
  malloc_trim(0);
}

}  // namespace
}  // namespace slotwise
