// Tests the oracle itself against published vectors, and against sums small enough for pencil and paper.
#include "tests/support/oracle.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <span>

#include "gtest/gtest.h"
#include "tests/support/checked_table.h"
#include "tests/support/same_bytes.h"

namespace slotwise::test {
namespace {

TEST(Oracle, Mix64IsMurmurHash3sFinaliser) {
  EXPECT_EQ(OracleMix64(0), 0u);
  EXPECT_EQ(OracleMix64(1), 0xB456BCFC34C2CB2C);
  EXPECT_EQ(OracleMix64(2), 0x3ABF2A20650683E7);
}

// The vectors that SipHash-2-4 was published with: key 00 01 .. 0f, messages of no bytes, 00, 00 01, ...
TEST(Oracle, SipHashAnswersItsAuthorsVectors) {
  std::array<std::uint8_t, 16> key;
  std::iota(key.begin(), key.end(), std::uint8_t{0});
  std::array<std::uint8_t, 15> message;
  std::iota(message.begin(), message.end(), std::uint8_t{0});
  const std::uint64_t vectors[] = {0x726FDB47DD0E0E31, 0x74F839C593DC67FD, 0x0D6C8009D9A94F5A,
                                   0x85676696D7FB7E2D, 0xCF2794E0277187B7, 0x18765564CD99A68D,
                                   0xCBC9466E58FEE3CE, 0xAB0200F58B01D137, 0x93F5F5799A932462};
  for (std::size_t length = 0; length < std::size(vectors); ++length) {
    EXPECT_EQ(OracleSipHash(2, 4, key, std::span(message).first(length)), vectors[length]) << length;
  }
  EXPECT_EQ(OracleSipHash(2, 4, key, message), 0xA129CA6149BE45E5) << "the example in the paper's appendix";
}

TEST(Oracle, KeyOfHashInvertsMix64) {
  Random random(1);
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t x = random.Bits();
    ASSERT_EQ(OracleMix64(KeyOfHash(x)), x);
    ASSERT_EQ(KeyOfHash(OracleMix64(x)), x);
  }
}

// These are the three vectors of Random123's kat_vectors for philox4x32-10.
TEST(Oracle, PhiloxAnswersRandom123sKnownVectors) {
  using Words = std::array<std::uint32_t, 4>;
  EXPECT_EQ(OraclePhilox({0, 0, 0, 0}, {0, 0}), (Words{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}));
  EXPECT_EQ(OraclePhilox({0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}, {0xFFFFFFFF, 0xFFFFFFFF}),
            (Words{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}));
  EXPECT_EQ(OraclePhilox({0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}, {0xA4093822, 0x299F31D0}),
            (Words{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}));
}

TEST(Oracle, FirstValuesFillTheIntervalEvenly) {
  const InitializerOptions initializer{.low = -1.0F, .high = 3.0F, .seed = 5};
  double sum = 0;
  float low = 3.0F;
  float high = -1.0F;
  constexpr int kRows = 2000;
  for (std::uint64_t key = 0; key < kRows; ++key) {
    for (std::uint32_t j = 0; j < 10; ++j) {
      const float value = OracleFirstValue(initializer, key, j);
      sum += value;
      low = std::min(low, value);
      high = std::max(high, value);
    }
  }
  EXPECT_GE(low, -1.0F);
  EXPECT_LT(high, 3.0F);
  EXPECT_LT(low, -0.99F);
  EXPECT_GT(high, 2.99F);
  EXPECT_NEAR(sum / (kRows * 10), 1.0, 0.03);
}

TEST(Oracle, BlockedSumAddsBlocksOf32AndThenTheirSums) {
  // 2^24 swallows a 1 that is added to it. In order, every later 1 is lost; in blocks, only those of the
  // first block.
  std::vector<float> terms(64, 1.0F);
  terms[0] = 0x1p24F;
  EXPECT_EQ(OracleBlockedSum(terms), 0x1p24F + 32.0F);
  EXPECT_EQ(OracleBlockedSum({}), 0.0F);
  EXPECT_EQ(OracleBlockedSum({5.0F}), 5.0F);
  EXPECT_EQ(OracleBlockedSum(std::vector<float>(32 * 32 * 32 + 1, 1.0F)), 32769.0F);
}

TEST(Oracle, PoolsAndDividesByAllKeysOfTheBag) {
  Oracle table(MakeIntegerOptions(2, Combiner::kMean));
  ASSERT_TRUE(table.Lookup(Batch({{1}}), LookupMode::kTrain).has_value());
  // Of keys 1, 1, 2, key 2 is absent: (3 + 3 + 0) / 3.
  EXPECT_EQ(*table.Lookup(Batch({{1, 1, 2}, {}}), LookupMode::kEval), (std::vector<float>{2, 2, 0, 0}));
}

TEST(Oracle, PushSubtractsTheSumOfAllOccurrences) {
  Oracle table(MakeIntegerOptions(1));
  ASSERT_TRUE(table.Push(Batch({{1, 2, 1}, {2}}), {10, 100}));
  EXPECT_EQ(table.rows().at(1).values[0], 3.0F - 20.0F);
  EXPECT_EQ(table.rows().at(2).values[0], 3.0F - 110.0F);
}

TEST(Oracle, AdamsFirstStepMovesByTheLearningRate) {
  TableOptions options = MakeOptions(1, Combiner::kSum, OptimizerKind::kAdam);
  options.initializer = {.low = 1.0F, .high = 1.0F, .seed = 0};
  Oracle table(options);
  ASSERT_TRUE(table.Push(Batch({{1}, {2}}), {1000.0F, -0.5F}));
  EXPECT_NEAR(table.rows().at(1).values[0], 1.0F - options.optimizer.learning_rate, 1e-6);
  EXPECT_NEAR(table.rows().at(2).values[0], 1.0F + options.optimizer.learning_rate, 1e-6);
}

TEST(Oracle, AdaGradDividesByTheRootOfTheSumOfSquares) {
  TableOptions options = MakeOptions(1, Combiner::kSum, OptimizerKind::kAdaGrad);
  options.initializer = {.low = 1.0F, .high = 1.0F, .seed = 0};
  options.optimizer.initial_accumulator = 7.0F;
  options.optimizer.learning_rate = 1.0F;
  Oracle table(options);
  ASSERT_TRUE(table.Push(Batch({{1}}), {3.0F}));
  EXPECT_EQ(table.rows().at(1).state[0], 16.0F);
  EXPECT_NEAR(table.rows().at(1).values[0], 1.0F - 3.0F / 4.0F, 1e-6);
}

// Returns a row of one element after one step, from w = 1 and `state`.
OracleRow AfterOneStep(OptimizerOptions optimizer, float gradient, std::vector<float> state) {
  OracleRow row{{1.0F}, std::move(state)};
  OracleUpdate(optimizer, 1, {gradient}, row);
  return row;
}

TEST(Oracle, FollowsEachFormulaOfOneStep) {
  OptimizerOptions o{.learning_rate = 0.5F, .epsilon = 0.0F, .momentum = 0.25F, .beta2 = 0.75F};
  o.kind = OptimizerKind::kMomentum;
  EXPECT_EQ(AfterOneStep(o, 3, {2}).values[0], 0.0F);
  o.kind = OptimizerKind::kNesterov;
  EXPECT_EQ(AfterOneStep(o, 3, {2}).values[0], 1.0F - 0.5F - 1.25F);
  o.kind = OptimizerKind::kRmsProp;
  EXPECT_EQ(AfterOneStep(o, 4, {16}).values[0], 1.0F - 0.5F);
  o.kind = OptimizerKind::kRowWiseAdaGrad;
  EXPECT_EQ(AfterOneStep(o, 3, {7}).values[0], 1.0F - 1.5F / 4.0F);
  o.kind = OptimizerKind::kFtrl;
  o.lambda1 = 1.0F;
  o.lambda2 = 2.0F;
  const OracleRow row = AfterOneStep(o, -4, {5, 9});
  EXPECT_EQ(row.state, (std::vector<float>{-3, 25}));
  EXPECT_EQ(row.values[0], 2.0F / 14.0F);
}

TEST(Oracle, AddsWeightDecayToTheGradient) {
  const OptimizerOptions sgd{.learning_rate = 1.0F, .weight_decay = 0.25F};
  EXPECT_EQ(AfterOneStep(sgd, 2, {}).values[0], 1.0F - 2.25F);
}

TEST(Oracle, RowWiseAdaGradTakesTheMeanOfTheRowsSquares) {
  OracleRow row{{0, 10}, {4}};
  OracleUpdate({.kind = OptimizerKind::kRowWiseAdaGrad, .learning_rate = 1.0F, .epsilon = 0.0F}, 1, {2, 6},
               row);
  EXPECT_EQ(row.state, (std::vector<float>{24}));
  EXPECT_FLOAT_EQ(row.values[1], 10.0F - 6.0F / std::sqrt(24.0F));
}

TEST(Oracle, SqrtnDividesByTheRootOfAllKeysOfTheBag) {
  Oracle table(MakeIntegerOptions(1, Combiner::kSqrtn));
  ASSERT_TRUE(table.Lookup(Batch({{1}}), LookupMode::kTrain).has_value());
  EXPECT_EQ(*table.Lookup(Batch({{1, 1, 1, 2}, {}, {1}}), LookupMode::kEval),
            (std::vector<float>{4.5F, 0, 3}));
  ASSERT_TRUE(table.Push(Batch({{1, 3, 3, 3}}), {2}));
  EXPECT_EQ(table.rows().at(1).values[0], 2.0F);
  EXPECT_EQ(table.rows().at(3).values[0], 0.0F);
}

TEST(Oracle, RefusesAWholeBatchThatIsTooMuchForARank) {
  std::vector<int> owners(4096, 0);
  std::fill(owners.begin() + 2048, owners.end(), 1);
  Oracle table(MakeIntegerOptions(1), owners);
  table.LimitRanks(2);
  const std::uint64_t low[] = {KeyOfHash(1), KeyOfHash(2), KeyOfHash(3)};
  const std::uint64_t high = KeyOfHash(~std::uint64_t{0});
  EXPECT_FALSE(table.Push(OneBag({high, low[0], low[1], low[2]}), {1}));
  EXPECT_TRUE(table.rows().empty());
  EXPECT_TRUE(table.Push(OneBag({low[0], low[1], low[1], high}), {1}));
  EXPECT_FALSE(table.Push(OneBag({low[2]}), {1}));
  EXPECT_EQ(table.Erase({low[0]}), 1u);
  EXPECT_TRUE(table.Push(OneBag({low[2]}), {1}));
}

TEST(Oracle, RefusesAWholeBatchThatDoesNotFit) {
  TableOptions options = MakeIntegerOptions(1);
  options.max_rows = 2;
  Oracle table(options);
  EXPECT_FALSE(table.Push(Batch({{1, 2, 3}}), {1}));
  EXPECT_EQ(table.step(), 0u);
  EXPECT_TRUE(table.rows().empty());
  EXPECT_TRUE(table.Push(Batch({{1, 2, 2, 1}}), {1}));
  EXPECT_EQ(table.step(), 1u);
}

}  // namespace
}  // namespace slotwise::test
