// Tests the small functions that all backends share, against published vectors and the oracle.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend/cpu_tile.h"
#include "kernels/body/digest.h"
#include "kernels/body/hash.h"
#include "kernels/body/long_sums.h"
#include "kernels/body/optimizer.h"
#include "kernels/body/philox.h"
#include "kernels/body/rows.h"
#include "kernels/body/siphash.h"
#include "kernels/body/update.h"
#include "kernels/shard.h"
#include "tests/support/oracle.h"

namespace slotwise::body {
namespace {

struct PhiloxVector {
  PhiloxWords counter;
  std::uint32_t key0;
  std::uint32_t key1;
  PhiloxWords answer;
};

// Random123's kat_vectors for philox4x32-10: zeros, ones, and the digits of π.
TEST(Philox, AnswersRandom123sKnownVectors) {
  const PhiloxVector vectors[] = {
      {{{0, 0, 0, 0}}, 0, 0, {{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}}},
      {{{0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}},
       0xFFFFFFFF,
       0xFFFFFFFF,
       {{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}}},
      {{{0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}},
       0xA4093822,
       0x299F31D0,
       {{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}}},
  };
  for (const PhiloxVector& vector : vectors) {
    const PhiloxWords words = Philox4x32(vector.counter, vector.key0, vector.key1);
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(words.word[i], vector.answer.word[i]) << "word " << i;
    }
  }
}

TEST(Philox, IsTheOraclesForAnyCounterAndKey) {
  test::Random random(120);
  const auto word = [&] { return static_cast<std::uint32_t>(random.Bits()); };
  for (int i = 0; i < 1000; ++i) {
    const std::array<std::uint32_t, 4> counter{word(), word(), word(), word()};
    const std::array<std::uint32_t, 2> key{word(), word()};
    const PhiloxWords words = Philox4x32({{counter[0], counter[1], counter[2], counter[3]}}, key[0], key[1]);
    const auto expected = test::OraclePhilox(counter, key);
    for (int w = 0; w < 4; ++w) {
      ASSERT_EQ(words.word[w], expected[w]);
    }
  }
}

// The eight bytes of a word, the first one its lowest.
template <std::size_t kSize>
void Write(std::uint64_t word, std::span<std::uint8_t, kSize> bytes) {
  for (std::size_t i = 0; i < kSize; ++i) bytes[i] = static_cast<std::uint8_t>(word >> (8 * i));
}

std::uint64_t OracleSipHashOfWord(int compression_rounds, int finalization_rounds, std::uint64_t low,
                                  std::uint64_t high, std::uint64_t word) {
  std::array<std::uint8_t, 16> key;
  std::array<std::uint8_t, 8> message;
  Write(low, std::span(key).first<8>());
  Write(high, std::span(key).last<8>());
  Write(word, std::span(message));
  return test::OracleSipHash(compression_rounds, finalization_rounds, key, message);
}

TEST(SipHash, AnswersItsAuthorsVectorOfEightBytes) {
  constexpr SipHashOfWord<2, 4> kHash(0x0706'0504'0302'0100, 0x0F0E'0D0C'0B0A'0908);
  static_assert(kHash(0x0706'0504'0302'0100) == 0x93F5'F579'9A93'2462);
}

TEST(SipHash, IsTheOraclesForAnyKeyWordAndNumberOfRounds) {
  test::Random random(123);
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t low = random.OneIn(10) ? 0 : random.Bits();
    const std::uint64_t high = random.OneIn(10) ? 0 : random.Bits();
    const std::uint64_t word = random.OneIn(10) ? i : random.Bits();
    ASSERT_EQ(PlaceHash(low, high)(word), OracleSipHashOfWord(1, 3, low, high, word));
    ASSERT_EQ((SipHashOfWord<2, 4>(low, high)(word)), OracleSipHashOfWord(2, 4, low, high, word));
    ASSERT_EQ((SipHashOfWord<4, 8>(low, high)(word)), OracleSipHashOfWord(4, 8, low, high, word));
    ASSERT_EQ((SipHashOfWord<1, 1>(low, high)(word)), OracleSipHashOfWord(1, 1, low, high, word));
  }
}

TEST(Hash, IsMurmurHash3sFinaliser) {
  EXPECT_EQ(Mix64(0), 0u);
  EXPECT_EQ(Mix64(1), 0xB456BCFC34C2CB2C);
  test::Random random(121);
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t x = random.Bits();
    ASSERT_EQ(Mix64(x), test::OracleMix64(x));
    ASSERT_EQ(Bucket(Key{x}), test::OracleBucket(x));
  }
}

TEST(Hash, SpreadsSerialKeysEvenlyOverBuckets) {
  std::vector<int> keys_of_bucket(kBuckets);
  for (std::uint64_t key = 0; key < std::uint64_t{100} * kBuckets; ++key) {
    ++keys_of_bucket[Bucket(Key{key})];
  }
  for (const int keys : keys_of_bucket) {
    EXPECT_NEAR(keys, 100, 70);  // seven standard deviations
  }
}

TEST(UniformFirstValues, AreTheOraclesForAnyKey) {
  test::Random random(122);
  const InitializerOptions options{.low = -0.3F, .high = 0.7F, .seed = random.Bits()};
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t key = random.Bits();
    for (const std::uint32_t element : {0, 1, 2, 3, 4, 5, 4095}) {
      ASSERT_EQ(InitialValue(options, Key{key}, element), test::OracleFirstValue(options, key, element));
    }
  }
}

TEST(Blocks, Hold32ItemsEach) {
  EXPECT_EQ(kSumBlock, 32u);
  EXPECT_EQ(BlocksOf(1), 1u);
  EXPECT_EQ(BlocksOf(32), 1u);
  EXPECT_EQ(BlocksOf(33), 2u);
  EXPECT_EQ(BlocksOf(1024), 32u);
  EXPECT_EQ(BlocksOf(1025), 33u);
}

// Numbers that a pencil can check.
TEST(Sgd, SubtractsTheGradientTimesTheRate) {
  float w[1] = {1.0F};
  Sgd{0.5F}(w, 1, 3.0F);
  EXPECT_EQ(w[0], -0.5F);
}

TEST(AdaGrad, DividesByTheRootOfTheSumOfSquares) {
  float record[4] = {1.0F, 5.0F, 7.0F, 11.0F};  // w0 w1 s0 s1
  AdaGrad{1.0F, 0.0F}(&record[0], 2, 3.0F);
  EXPECT_EQ(record[2], 16.0F);
  EXPECT_EQ(record[0], 1.0F - 3.0F / 4.0F);
  EXPECT_EQ(record[1], 5.0F) << "the neighbour's weight";
  EXPECT_EQ(record[3], 11.0F) << "the neighbour's state";
}

TEST(Adam, KeepsBothMomentsOfItsElement) {
  float record[6] = {1.0F, 2.0F, 0.0F, 8.0F, 0.0F, 9.0F};  // w0 w1 m0 m1 v0 v1
  Adam{1.0F, 1.0F, 0.5F, 0.75F, 0.0F}(&record[0], 2, 4.0F);
  EXPECT_EQ(record[2], 2.0F);
  EXPECT_EQ(record[4], 4.0F);
  EXPECT_EQ(record[0], 1.0F - 2.0F / 2.0F);
  EXPECT_EQ(record[1], 2.0F);
  EXPECT_EQ(record[3], 8.0F);
  EXPECT_EQ(record[5], 9.0F);
}

// Numbers that a pencil can check, of one element among two: w0 w1, then the state of each, then the second
// state.
TEST(Momentum, KeepsTheVelocity) {
  float record[4] = {1.0F, 5.0F, 2.0F, 7.0F};
  Momentum{0.5F, 0.25F}(&record[0], 2, 3.0F);
  EXPECT_EQ(record[2], 0.5F - 1.5F);
  EXPECT_EQ(record[0], 0.0F);
  EXPECT_EQ(record[1], 5.0F);
  EXPECT_EQ(record[3], 7.0F);
}

TEST(Nesterov, StepsFromWhereTheVelocityWillLead) {
  float record[4] = {1.0F, 5.0F, 2.0F, 7.0F};
  Nesterov{0.5F, 0.25F}(&record[0], 2, 3.0F);
  EXPECT_EQ(record[2], -1.0F);
  EXPECT_EQ(record[0], 1.0F + (-0.5F + 1.25F * -1.0F));
  EXPECT_EQ(record[1], 5.0F);
  EXPECT_EQ(record[3], 7.0F);
}

TEST(RmsProp, DividesByTheRootOfTheRunningMean) {
  float record[4] = {1.0F, 5.0F, 16.0F, 7.0F};
  RmsProp{1.0F, 0.75F, 0.0F}(&record[0], 2, 4.0F);
  EXPECT_EQ(record[2], 16.0F);
  EXPECT_EQ(record[0], 0.0F);
  EXPECT_EQ(record[1], 5.0F);
  EXPECT_EQ(record[3], 7.0F);
}

TEST(RowWiseAdaGrad, KeepsTheMeanOfTheRowsSquares) {
  float record[2] = {1.0F, 5.0F};
  RowWiseAdaGrad optimizer{1.0F, 0.0F};
  optimizer.SeeRow(3.0F, 2, 26.0F);  // of 1 and 5
  EXPECT_EQ(optimizer.shared_state(), 16.0F);
  optimizer(&record[1], 2, 5.0F);
  EXPECT_EQ(record[0], 1.0F);
  EXPECT_EQ(record[1], 5.0F - 5.0F / 4.0F);
}

TEST(LongSums, HaveAsManyLevelsAsMakeOneItem) {
  EXPECT_EQ(LevelsOf(1), 0u);
  EXPECT_EQ(LevelsOf(2), 1u);
  EXPECT_EQ(LevelsOf(32), 1u);
  EXPECT_EQ(LevelsOf(33), 2u);
  EXPECT_EQ(LevelsOf(1024), 2u);
  EXPECT_EQ(LevelsOf(1025), 3u);
  EXPECT_EQ(BlocksOf(~0U), 1U << 27);
}

TEST(Ftrl, ShrinksTowardsZeroByLambda1) {
  const Ftrl ftrl{0.5F, 1.0F, 2.0F, 1.0F};                 // rate, λ₁, λ₂, β
  float record[6] = {1.0F, 8.0F, 5.0F, 8.0F, 9.0F, 8.0F};  // w0 w1 z0 z1 n0 n1
  ftrl(&record[0], 2, -4.0F);
  EXPECT_EQ(record[4], 25.0F);
  EXPECT_EQ(record[2], 5.0F + (-4.0F - 4.0F * 1.0F));  // σ = (5 - 3) / 0.5
  EXPECT_EQ(record[0], (-1.0F + 3.0F) / ((1.0F + 5.0F) / 0.5F + 2.0F));
  for (const int neighbour : {1, 3, 5}) {
    EXPECT_EQ(record[neighbour], 8.0F);
  }
  float small[3] = {7.0F, 0.0F, 0.0F};
  ftrl(&small[0], 1, 0.0F);
  EXPECT_EQ(small[0], 0.0F) << "|z| is not above λ₁";
}

TEST(RowWiseAdaGrad, SaysWhetherTheRowMayMove) {
  RowWiseAdaGrad optimizer{1.0F, 0.0F};
  EXPECT_TRUE(optimizer.SeeRow(3e38F, 1, 1e37F));
  EXPECT_FALSE(optimizer.SeeRow(3e38F, 1, 1e38F));
  EXPECT_FALSE(optimizer.SeeRow(3e38F, 1, NAN));
}

constexpr auto kAsItIs = [](float weight) { return weight; };

TEST(FiniteSteps, AreTheOptimizersOwn) {
  float record[6] = {1.0F, 2.0F, 0.0F, 8.0F, 0.0F, 9.0F};
  float expected[6] = {1.0F, 2.0F, 0.0F, 8.0F, 0.0F, 9.0F};
  const Adam adam{1.0F, 1.0F, 0.5F, 0.75F, 0.0F};
  FiniteSteps<Adam>{adam}(&record[0], &record[2], 2, 4.0F, kAsItIs);
  adam(&expected[0], 2, 4.0F);
  EXPECT_TRUE(std::equal(record, record + 6, expected));
  EXPECT_NE(record[0], 1.0F);
}

// What overflows is in turn the weight, the first state and the second one.
TEST(FiniteSteps, ChangeNothingOfAnElementThatWouldOverflow) {
  const auto expect_unchanged = [](auto optimizer, std::vector<float> record, float g) {
    std::vector<float> after = record;
    FiniteSteps<decltype(optimizer)>{optimizer}(after.data(), after.data() + 1, 1, g, kAsItIs);
    EXPECT_EQ(after, record) << "gradient " << g;
  };
  for (const float g : {INFINITY, -INFINITY, NAN}) {
    expect_unchanged(Sgd{0.5F}, {1}, g);
    expect_unchanged(Momentum{0.5F, 0.0F}, {1, 2}, g);
    expect_unchanged(Nesterov{0.5F, 0.0F}, {1, 2}, g);
    expect_unchanged(AdaGrad{0.5F, 1.0F}, {1, 2}, g);
    expect_unchanged(RmsProp{0.5F, 0.0F, 1.0F}, {1, 2}, g);
    expect_unchanged(Adam{0.5F, 1.0F, 0.0F, 0.0F, 1.0F}, {1, 2, 3}, g);
    expect_unchanged(Ftrl{0.5F, 0.0F, 0.0F, 1.0F}, {1, 2, 3}, g);
  }
  expect_unchanged(Sgd{1.0F}, {3e38F}, -3e38F);
  expect_unchanged(Momentum{1.0F, 0.5F}, {3e38F, 2}, -3e38F);
  expect_unchanged(AdaGrad{1.0F, 1.0F}, {1, 2}, 2e19F);
  expect_unchanged(Adam{1.0F, 1.0F, 0.5F, 0.5F, 1.0F}, {1, 2, 3}, 1e20F);  // v alone
  expect_unchanged(Ftrl{0.0F, 0.0F, 0.0F, 1.0F}, {1, 2, 3}, 1.0F);         // a rate of 0: z
}

TEST(FiniteSteps, ChangeNothingOfAnElementWhoseWeightWouldBeTooLargeOnceItIsRounded) {
  std::vector<float> record = {65000.0F, 2.0F};
  const FiniteSteps<AdaGrad> steps{AdaGrad{1.0F, 1.0F}};
  const auto to_float16 = [](float weight) { return Float16::Of(weight).Wide(); };
  const std::vector<float> before = record;
  steps(record.data(), record.data() + 1, 1, -1e12F, to_float16);
  EXPECT_NE(record, before) << "65001 becomes 64992";
  record = {65504.0F, 0.0F};
  const auto to_infinity = [](float /*weight*/) { return INFINITY; };
  steps(record.data(), record.data() + 1, 1, -1e12F, to_infinity);
  EXPECT_EQ(record, (std::vector<float>{65504.0F, 0.0F}));
  // A rounding may make a number of NaN.
  steps(record.data(), record.data() + 1, 1, NAN, [](float /*weight*/) { return 0.0F; });
  EXPECT_EQ(record, (std::vector<float>{65504.0F, 0.0F}));
}

TEST(NormalQuantile, IsThatOfTables) {
  EXPECT_NEAR(NormalQuantile(0.975F), 1.959964, 2e-6);
  EXPECT_NEAR(NormalQuantile(0.841344746F), 1.0, 2e-6);
  EXPECT_NEAR(NormalQuantile(0.75F), 0.67448975, 1e-6);
  EXPECT_NEAR(NormalQuantile(0.001F), -3.09023231, 4e-6);
  EXPECT_NEAR(NormalQuantile(0x1p-24F), -5.29470408, 4e-6);  // the smallest that an initial value asks for
  for (const float p : {0x1p-24F, 0x1p-20F, 0.0625F, 0.07421875F, 0.1F, 0.25F, 0.4375F}) {
    EXPECT_EQ(NormalQuantile(1.0F - p), -NormalQuantile(1.0F - (1.0F - p))) << "p = " << p;
  }
}

TEST(Logarithm, IsTheLibrarys) {
  for (double x = 0x1p-100; x < 0x1p100; x *= 1.37) {
    const double expected = std::log(static_cast<double>(static_cast<float>(x)));
    EXPECT_NEAR(Logarithm(static_cast<float>(x)), expected, 2e-7 * std::max(1.0, std::abs(expected))) << x;
  }
}

// Chunks cover each element of a row once, whatever the tile.
template <std::uint32_t Lanes, class V, std::uint32_t N>
struct TileOf {
  static constexpr std::uint32_t kLanes = Lanes;
  using Vector = V;
  static constexpr std::uint32_t kVectors = N;
  std::uint32_t lane_number = 0;
  std::uint32_t lane() const { return lane_number; }
};

template <class Tile>
inline constexpr std::uint32_t kFloatsOfVector = kFloatsOf<typename Tile::Vector>;
template <class Vector>
inline constexpr std::uint32_t kFloatsOfVector<VectorTile<Vector>> = 1;  // it leaves the rest to floats

// Stores a row by vectors as halves, and loads it.
template <class Half, class Tile>
void ExpectRoundedOnce(auto tile_of_lane, const std::vector<float>& row) {
  const auto dim = static_cast<std::uint32_t>(row.size());
  std::vector<std::uint64_t> memory((row.size() + 3) / 4);  // aligned as a device's
  auto* const halves = reinterpret_cast<Half*>(memory.data());
  std::vector<float> narrow(dim);
  std::vector<float> expected(dim);
  for (std::uint32_t j = 0; j < dim; ++j) expected[j] = Half::Of(row[j]).Wide();
  const auto for_each_vector = [&](auto visit) {
    for (std::uint32_t lane = 0; lane < Tile::kLanes; ++lane) {
      ForEachChunk(tile_of_lane(lane), dim, [&](auto chunk) {
        for (std::uint32_t v = 0; v < chunk.kVectors; ++v) visit(chunk, v);
      });
    }
  };
  for_each_vector([&](auto chunk, std::uint32_t v) { chunk.Store(halves, v, chunk.Load(row.data(), v)); });
  for_each_vector([&](auto chunk, std::uint32_t v) { chunk.Store(narrow.data(), v, chunk.Load(halves, v)); });
  EXPECT_EQ(narrow, expected) << Tile::kLanes << " lanes, dim " << dim;
}

// Visits elements, and copies by vectors. Rows are exactly as long as they are, for the address sanitizer to
// see.
template <class Tile>
void ExpectEachElementOnce(auto tile_of_lane) {
  for (const std::uint32_t dim :
       {1, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 80, 100, 127, 128, 129, 4096}) {
    if (dim % kFloatsOfVector<Tile> != 0) continue;
    std::vector<float> row(dim);
    std::iota(row.begin(), row.end(), 4000.25F);  // most are no halves
    std::vector<float> copy(dim);
    std::vector<int> visits(dim, 0);
    for (std::uint32_t lane = 0; lane < Tile::kLanes; ++lane) {
      ForEachChunk(tile_of_lane(lane), dim, [&](auto chunk) {
        Vectors<decltype(chunk)> vectors;
        for (std::uint32_t v = 0; v < chunk.kVectors; ++v) {
          vectors[v] = chunk.Load(row.data(), v);
          chunk.Store(copy.data(), v, vectors[v]);
        }
        chunk.ForEachElement(vectors, [&](std::size_t element, float value) {
          ++visits.at(element);
          EXPECT_EQ(value, row[element]);
        });
      });
    }
    EXPECT_EQ(visits, std::vector<int>(dim, 1)) << Tile::kLanes << " lanes, dim " << dim;
    EXPECT_EQ(copy, row) << Tile::kLanes << " lanes, dim " << dim;
    ExpectRoundedOnce<Float16, Tile>(tile_of_lane, row);
    ExpectRoundedOnce<BFloat16, Tile>(tile_of_lane, row);
  }
}

template <class Tile>
void ExpectEachElementVisitedOnce() {
  ExpectEachElementOnce<Tile>([](std::uint32_t lane) { return Tile{lane}; });
}

TEST(Chunks, OfTheCpusTileCoverEachElementOnce) {
  ExpectEachElementOnce<CpuTile>([](std::uint32_t) { return CpuTile(); });
}

TEST(Chunks, CoverEachElementOnceForEveryTile) {
  ExpectEachElementVisitedOnce<TileOf<1, float, 16>>();
  ExpectEachElementVisitedOnce<TileOf<1, float, 4>>();
  ExpectEachElementVisitedOnce<TileOf<4, float, 4>>();
  ExpectEachElementVisitedOnce<TileOf<8, float, 4>>();
  ExpectEachElementVisitedOnce<TileOf<32, float, 4>>();
  ExpectEachElementVisitedOnce<TileOf<1, Float4, 1>>();
  ExpectEachElementVisitedOnce<TileOf<4, Float4, 1>>();
  ExpectEachElementVisitedOnce<TileOf<8, Float4, 4>>();
}

// A tile whose lanes run one after the other.
template <std::uint32_t Lanes, class V, std::uint32_t N>
struct LaneByLane {
  static constexpr std::uint32_t kLanes = Lanes;
  using Vector = V;
  static constexpr std::uint32_t kVectors = N;
  static inline std::uint32_t lane_number = 0;
  static std::uint32_t lane() { return lane_number; }
  static void Sync() {}
  template <std::uint32_t kFloats>
  static float* Memory() {
    alignas(16) static float memory[kFloats];
    return memory;
  }
};

template <class Tile>
void ExpectSquaresInOrder() {
  for (const std::uint32_t dim : {4, 8, 12, 28, 32, 36, 64, 100, 128, 132, 4096}) {
    // The order shows: each element is of another magnitude.
    std::vector<float> row(dim);
    test::Random random(dim);
    for (float& element : row) element = std::ldexp(1.5F, static_cast<int>(random.Below(24)) - 12);
    float expected = 0.25F;
    for (const float element : row) expected += element * element;

    // In the second pass over the lanes each of them finds what all have handed over in the first.
    std::vector<float> sums(Tile::kLanes, 0.25F);
    ForEachChunk(Tile(), dim, [&](auto chunk) {
      const std::uint32_t base = chunk.first;
      std::vector<float> after(Tile::kLanes);
      for (const int pass : {1, 2}) {
        for (std::uint32_t lane = 0; lane < Tile::kLanes; ++lane) {
          Tile::lane_number = lane;
          auto mine = chunk;
          mine.first = base + lane * kFloatsOf<typename Tile::Vector>;
          Vectors<decltype(chunk)> values;
          for (std::uint32_t v = 0; v < chunk.kVectors; ++v) values[v] = mine.Load(row.data(), v);
          after[lane] = mine.AddSquares(values, sums[lane]);
          if (pass == 1) after[lane] = 0;
        }
      }
      Tile::lane_number = 0;
      sums = after;
      EXPECT_EQ(chunk.IsWholeRow(), dim <= chunk.kFloats);
    });
    EXPECT_EQ(sums, std::vector<float>(Tile::kLanes, expected)) << Tile::kLanes << " lanes, dim " << dim;
  }
}

TEST(Chunks, AddSquaresInTheOrderOfTheRowForEveryTile) {
  ExpectSquaresInOrder<LaneByLane<1, float, 16>>();
  ExpectSquaresInOrder<LaneByLane<1, Float4, 1>>();
  ExpectSquaresInOrder<LaneByLane<32, float, 4>>();
  ExpectSquaresInOrder<LaneByLane<4, Float4, 1>>();
  ExpectSquaresInOrder<LaneByLane<8, Float4, 1>>();
  ExpectSquaresInOrder<LaneByLane<8, Float4, 4>>();
}

TEST(Sums, OfManyItemsAtOnceAreThoseOfOneAfterTheOther) {
  constexpr std::uint32_t kDim = 5;
  test::Random random(9);
  std::vector<float> items(std::size_t{kSumBlock} * kDim);
  for (float& item : items) item = std::ldexp(1.5F, static_cast<int>(random.Below(24)) - 12);
  items[0] = -0.0F;  // alone it stays so
  const BlockSums source{items.data(), kDim};
  for (std::uint32_t count = 1; count <= kSumBlock; ++count) {
    ForEachChunk(SerialTile(), kDim, [&](auto chunk) {
      Vectors<decltype(chunk)> one_by_one;
      Vectors<decltype(chunk)> by_three;
      Vectors<decltype(chunk)> by_eight;
      SumInOrder(chunk, count, source, one_by_one);
      SumInOrderByMany<3>(chunk, count, source, by_three);
      SumInOrderByMany<8>(chunk, count, source, by_eight);
      for (std::uint32_t j = 0; j < kDim; ++j) {
        EXPECT_EQ(std::bit_cast<std::uint32_t>(by_three[j]), std::bit_cast<std::uint32_t>(one_by_one[j]));
        EXPECT_EQ(std::bit_cast<std::uint32_t>(by_eight[j]), std::bit_cast<std::uint32_t>(one_by_one[j]));
      }
    });
  }
}

TEST(LongSums, TakeAPartialSumForElevenOccurrencesAtMost) {
  for (std::uint32_t items = kSumBlock + 1; items < 40'000; ++items) {
    ASSERT_LE(AllBlocksOf(items) * Shard::kKeysAPartialSum, items) << items;
  }
  EXPECT_EQ(AllBlocksOf(33) * Shard::kKeysAPartialSum, 33u) << "no smaller number will do";
  EXPECT_EQ(AllBlocksOf(32 * 32), 33u);
}

}  // namespace
}  // namespace slotwise::body
