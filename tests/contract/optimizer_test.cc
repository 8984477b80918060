// A push updates each touched row once a step, by the optimizer's formula. Untouched rows do not change.
#include <cmath>

#include "tests/contract/contract_test.h"

namespace slotwise::test {
namespace {

class Optimizer : public ContractTest {
 protected:
  template <class Test>
  void OnEachKind(Test test) {
    for (const auto kind : kEveryOptimizer) {
      SCOPED_TRACE(ToString(kind));
      test(kind);
    }
  }
};
SLOTWISE_ON_EVERY_BACKEND(Optimizer);

TEST_P(Optimizer, MovesRowsOfEveryDimBy1And2And10Steps) {
  OnEachKind([&](OptimizerKind kind) {
    for (const std::uint32_t dim : {1, 3, 8, 9, 16, 17, 64, 100, 128, 130}) {
      for (const float weight_decay : {0.0F, 0.01F}) {
        const Combiner combiner = kEveryCombiner[dim % kEveryCombiner.size()];
        SCOPED_TRACE(std::string(ToString(combiner)) + " of dim " + std::to_string(dim) + ", weight decay " +
                     std::to_string(weight_decay));
        TableOptions options = MakeOptions(dim, combiner, kind);
        options.optimizer.weight_decay = weight_decay;
        CheckedTable table(cluster(), options);
        Random random(80 + dim);
        for (int step = 1; step <= 10; ++step) {
          table.PushRandom(RandomBatch(random, {.bags = 30, .max_bag = 5, .distinct_keys = 60}), random);
          if (step == 1 || step == 2 || step == 10) {
            table.ExpectRowsMatch();
          }
        }
      }
    }
  });
}

TEST_P(Optimizer, ObeysItsConstants) {
  for (const float learning_rate : {1e-4F, 0.3F, 7.0F}) {
    for (const float epsilon : {1e-10F, 1e-8F, 0.5F}) {
      OnEachKind([&](OptimizerKind kind) {
        TableOptions options = MakeOptions(4, Combiner::kSum, kind);
        options.optimizer = {.kind = kind,
                             .learning_rate = learning_rate,
                             .weight_decay = epsilon,
                             .epsilon = epsilon,
                             .initial_accumulator = learning_rate * 2,
                             .momentum = 0.6F,
                             .beta1 = 0.7F,
                             .beta2 = 0.95F,
                             .ftrl_beta = 0.8F,
                             .lambda1 = 0.2F,
                             .lambda2 = 0.4F};
        CheckedTable table(cluster(), options);
        Random random(81);
        for (int step = 0; step < 5; ++step) {
          table.PushRandom(RandomBatch(random, {.bags = 20, .distinct_keys = 30}), random);
        }
        table.ExpectRowsMatch();
      });
    }
  }
}

// As torch.optim.Adam and AdamW are, on the rows that a step touches.
TEST_P(Optimizer, CorrectsEpsilonAndDecouplesDecay) {
  for (const bool corrected : {false, true}) {
    for (const bool decoupled : {false, true}) {
      SCOPED_TRACE(testing::Message() << corrected << " " << decoupled);
      TableOptions options = MakeOptions(5, Combiner::kSum, OptimizerKind::kAdam);
      options.optimizer = {.kind = OptimizerKind::kAdam,
                           .learning_rate = 0.3F,
                           .weight_decay = 0.2F,
                           .epsilon = 0.01F,
                           .beta1 = 0.7F,
                           .beta2 = 0.95F,
                           .corrected_epsilon = corrected,
                           .decoupled_decay = decoupled};
      CheckedTable table(cluster(), options);
      Random random(83);
      for (int step = 0; step < 6; ++step) {
        table.PushRandom(RandomBatch(random, {.bags = 20, .distinct_keys = 30}), random);
        table.ExpectRowsMatch();
      }
    }
  }
}

TEST_P(Optimizer, CountsTheTablesStepsNotTheRows) {
  CheckedTable table(cluster(), MakeOptions(4, Combiner::kSum, OptimizerKind::kAdam));
  Random random(82);
  for (int step = 0; step < 20; ++step) {
    table.PushRandom(OneBag({1, 2}), random);
  }
  table.PushRandom(OneBag({3}), random);  // its first step is the table's 21st
  table.PushRandom(Batch(), random);      // no key, but a step
  table.PushRandom(OneBag({1, 3}), random);
  EXPECT_EQ(table.shards().step(), 23u);
  table.ExpectRowsMatch();
}

TEST_P(Optimizer, LeavesUntouchedRowsAlone) {
  OnEachKind([&](OptimizerKind kind) {
    CheckedTable table(cluster(), MakeOptions(9, Combiner::kSum, kind));
    Random random(83);
    table.PushRandom(OneKeyABag(KeyRange(0, 100)), random);
    const std::vector<ExportedRow> before = table.shards().Export();
    for (int step = 0; step < 5; ++step) {
      table.PushRandom(OneKeyABag(KeyRange(50, 20)), random);
    }
    const std::vector<ExportedRow> after = table.shards().Export();
    ASSERT_EQ(after.size(), 100u);
    for (std::uint64_t key = 0; key < 100; ++key) {
      const bool touched = key >= 50 && key < 70;
      EXPECT_EQ(SameBytes(after[key].values, before[key].values), !touched) << "key " << key;
    }
    table.ExpectRowsMatch();
  });
}

TEST_P(Optimizer, UpdatesARowOnceHoweverOftenTheStepNamesIt) {
  TableOptions options = MakeIntegerOptions(1);
  options.optimizer.kind = OptimizerKind::kAdaGrad;
  options.optimizer.initial_accumulator = 0.0F;
  CheckedTable table(cluster(), options);
  table.Push(Batch({{1, 1}, {1}, {2}}), {1, 2, 3});
  const std::vector<ExportedRow> rows = table.shards().Export();
  EXPECT_EQ(rows[0].values[1], 16.0F) << "the square of 1 + 1 + 2, not 1 + 1 + 4";
  EXPECT_EQ(rows[1].values[1], 9.0F);
  table.ExpectRowsMatch();
}

TEST_P(Optimizer, TakesZeroGradientsAsAStep) {
  OnEachKind([&](OptimizerKind kind) {
    CheckedTable table(cluster(), MakeOptions(4, Combiner::kSum, kind));
    Random random(84);
    table.Push(Batch({{1}, {2, 3}}), std::vector<float>(8, 0.0F));
    table.Push(Batch({{1}, {2, 3}}), std::vector<float>(8, -0.0F));
    table.PushRandom(Batch({{1}, {2}}), random);
    table.Push(Batch({{1}, {2, 3}}), std::vector<float>(8, 0.0F));
    table.ExpectRowsMatch();
  });
}

// Weight decay pulls by the row's own weights, once a step however often the step names the row.
TEST_P(Optimizer, AddsWeightDecayOnceAStepToTheSummedGradient) {
  TableOptions options = MakeIntegerOptions(2);
  options.optimizer.weight_decay = 0.5F;
  CheckedTable table(cluster(), options);
  table.Push(Batch({{1, 1}, {1}, {2}}), {1, 2, 3, 4, 0, -1});
  const std::vector<ExportedRow> rows = table.shards().Export();
  EXPECT_EQ(rows[0].values, (std::vector<float>{3.0F - (5.0F + 1.5F), 3.0F - (8.0F + 1.5F)}));
  EXPECT_EQ(rows[1].values, (std::vector<float>{3.0F - (0.0F + 1.5F), 3.0F - (-1.0F + 1.5F)}));
  table.ExpectRowsMatch();
}

TEST_P(Optimizer, KeepsItsStateThroughManyStepsOnTheSameRows) {
  OnEachKind([&](OptimizerKind kind) {
    TableOptions options = MakeOptions(5, Combiner::kSqrtn, kind);
    options.optimizer.weight_decay = 0.001F;
    CheckedTable table(cluster(), options);
    Random random(85);
    for (int step = 0; step < 200; ++step) {
      table.PushRandom(RandomBatch(random, {.bags = 6, .max_bag = 3, .distinct_keys = 5}), random);
    }
    table.ExpectRowsMatch();
  });
}

// |z| at λ₁ and below it: the weight is +0, not nearly so.
TEST_P(Optimizer, FtrlSetsWeightsToZeroWithinLambda1) {
  TableOptions options = MakeOptions(4, Combiner::kSum, OptimizerKind::kFtrl);
  options.optimizer.learning_rate = 1.0F;
  options.optimizer.ftrl_beta = 1.0F;
  options.optimizer.lambda1 = 2.0F;
  options.optimizer.lambda2 = 0.0F;
  options.initializer = {.kind = InitializerKind::kConstant, .mean = 0.0F};
  CheckedTable table(cluster(), options);
  table.Push(OneBag({1}), {2.0F, -2.0F, 3.0F, -3.0F});
  EXPECT_TRUE(SameBytes(table.shards().Export()[0].values,
                        {0, 0, (2.0F - 3.0F) / 4.0F, (3.0F - 2.0F) / 4.0F, 2, -2, 3, -3, 4, 4, 9, 9}));
  table.ExpectRowsMatch();
}

// Flushed to zero, they would part the backends.
TEST_P(Optimizer, KeepsSubnormalNumbers) {
  OnEachKind([&](OptimizerKind kind) {
    TableOptions options = MakeOptions(4, Combiner::kMean, kind);
    options.initializer = {.low = -1e-38F, .high = 1e-38F, .seed = 1};
    options.optimizer.initial_accumulator = 0.0F;
    options.optimizer.learning_rate = 0.5F;
    CheckedTable table(cluster(), options);
    const std::vector<float> gradients{1e-39F, -3e-40F, 1.4e-45F, 1e-38F, 1e-20F, -1e-22F, 3e-23F, 2e-39F};
    for (int step = 0; step < 3; ++step) {
      table.Push(Batch({{1, 2, 3}, {4, 1}}), gradients);
      table.Lookup(Batch({{1, 2, 3}, {4, 1}}), LookupMode::kEval);
    }
    table.ExpectRowsMatch();
  });
}

TEST_P(Optimizer, KeepsVeryLargeNumbers) {
  OnEachKind([&](OptimizerKind kind) {
    CheckedTable table(cluster(), MakeOptions(2, Combiner::kSum, kind));
    for (int step = 0; step < 3; ++step) {
      table.Push(Batch({{1}, {2}, {1}}), {1e18F, -1e18F, 3e17F, 1e15F, -2e18F, 1.0F});
    }
    table.ExpectRowsMatch();
  });
}

TEST(StepScalars, CorrectAdamsBiasInDouble) {
  OptimizerOptions adam{.kind = OptimizerKind::kAdam, .learning_rate = 0.02F, .beta1 = 0.8F, .beta2 = 0.99F};
  for (const std::uint64_t t : {1, 2, 3, 10, 1000, 1'000'000}) {
    const auto steps = static_cast<double>(t);
    const double corrected =
        double{0.02F} * std::sqrt(1 - std::pow(double{0.99F}, steps)) / (1 - std::pow(double{0.8F}, steps));
    EXPECT_EQ(ScalarsOfStep(adam, t).adam_rate, static_cast<float>(corrected)) << "t = " << t;
    EXPECT_EQ(ScalarsOfStep(adam, t).learning_rate, 0.02F);
  }
}

TEST(StepScalars, HaveAdamsEpsilonAndDecay) {
  OptimizerOptions adam{.kind = OptimizerKind::kAdam,
                        .learning_rate = 0.02F,
                        .weight_decay = 0.5F,
                        .epsilon = 1e-3F,
                        .beta2 = 0.99F};
  EXPECT_EQ(ScalarsOfStep(adam, 3).adam_epsilon, 1e-3F);
  EXPECT_EQ(ScalarsOfStep(adam, 3).adam_keep, 1.0F);
  adam.corrected_epsilon = adam.decoupled_decay = true;
  const double root = std::sqrt(1 - std::pow(double{0.99F}, 3.0));
  EXPECT_EQ(ScalarsOfStep(adam, 3).adam_epsilon, static_cast<float>(double{1e-3F} * root));
  EXPECT_EQ(ScalarsOfStep(adam, 3).adam_keep, static_cast<float>(1 - double{0.02F} * 0.5));
  adam.kind = OptimizerKind::kSgd;
  EXPECT_EQ(ScalarsOfStep(adam, 3).adam_keep, 1.0F);
}

TEST(StepScalars, HoldTheLearningRateOfEveryKind) {
  for (const auto kind : kEveryOptimizer) {
    SCOPED_TRACE(ToString(kind));
    EXPECT_EQ(ScalarsOfStep({.kind = kind, .learning_rate = 0.3F}, 1).learning_rate, 0.3F);
    EXPECT_EQ(ScalarsOfStep({.kind = kind, .learning_rate = 0.7F}, 9).learning_rate, 0.7F);
  }
}

}  // namespace
}  // namespace slotwise::test
