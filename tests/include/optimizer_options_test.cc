// Constants of an optimizer or an initializer are refused where they cannot be used, and ignored if they
// belong to another kind.
#include <initializer_list>
#include <string>
#include <tuple>
#include <utility>

#include "gtest/gtest.h"
#include "slotwise/table_options.h"
#include "tests/include/checked_options.h"

namespace slotwise {
namespace {

TEST(OptimizerOptions, RefuseALearningRateThatIsNotAboveZeroAndFinite) {
  for (const auto kind : kEveryOptimizer) {
    const auto expect = [&](float rate, const std::string& text) {
      ExpectRefused(
          "optimizer.learning_rate", text,
          [&](TableOptions& options) { options.optimizer.learning_rate = rate; }, kind);
    };
    expect(0.0F, "0");
    expect(-0.5F, "-0.5");
    expect(kNan, "nan");
    expect(kInfinity, "inf");
  }
}

// Expects that each of `kinds` refuses these values of its constant `member`.
void ExpectConstantRefused(const std::string& name, float OptimizerOptions::*member,
                           std::initializer_list<OptimizerKind> kinds,
                           std::initializer_list<std::pair<float, const char*>> values) {
  for (const OptimizerKind kind : kinds) {
    SCOPED_TRACE(ToString(kind));
    for (const auto& [value, text] : values) {
      ExpectRefused(
          "optimizer." + name, text,
          [&, refused = value](TableOptions& options) { options.optimizer.*member = refused; }, kind);
    }
  }
}

TEST(OptimizerOptions, RefuseConstantsThatTheirOptimizerCannotUse) {
  using Kind = OptimizerKind;
  using Options = OptimizerOptions;
  ExpectConstantRefused("epsilon", &Options::epsilon,
                        {Kind::kAdaGrad, Kind::kRowWiseAdaGrad, Kind::kRmsProp, Kind::kAdam},
                        {{0.0F, "0"}, {-1.0F, "-1"}, {kNan, "nan"}, {kInfinity, "inf"}});
  ExpectConstantRefused("initial_accumulator", &Options::initial_accumulator,
                        {Kind::kAdaGrad, Kind::kRowWiseAdaGrad},
                        {{-0.5F, "-0.5"}, {kNan, "nan"}, {kInfinity, "inf"}});
  ExpectConstantRefused("momentum", &Options::momentum, {Kind::kMomentum, Kind::kNesterov},
                        {{1.0F, "1"}, {-0.5F, "-0.5"}, {kNan, "nan"}, {kInfinity, "inf"}});
  ExpectConstantRefused("beta1", &Options::beta1, {Kind::kAdam},
                        {{1.0F, "1"}, {-0.5F, "-0.5"}, {kNan, "nan"}});
  ExpectConstantRefused("beta2", &Options::beta2, {Kind::kAdam},
                        {{1.0F, "1"}, {-0.5F, "-0.5"}, {kNan, "nan"}});
  ExpectConstantRefused("beta", &Options::beta2, {Kind::kRmsProp},
                        {{1.0F, "1"}, {-0.5F, "-0.5"}, {kNan, "nan"}});
  ExpectConstantRefused("lambda1", &Options::lambda1, {Kind::kFtrl},
                        {{-0.5F, "-0.5"}, {kNan, "nan"}, {kInfinity, "inf"}});
  ExpectConstantRefused("lambda2", &Options::lambda2, {Kind::kFtrl},
                        {{-0.5F, "-0.5"}, {kNan, "nan"}, {kInfinity, "inf"}});
  // 0 is refused too, because a gradient whose square underflows would divide by 0.
  ExpectConstantRefused("beta", &Options::ftrl_beta, {Kind::kFtrl},
                        {{0.0F, "0"}, {-0.5F, "-0.5"}, {kNan, "nan"}, {kInfinity, "inf"}});
}

TEST(OptimizerOptions, RefuseAWeightDecayThatIsNegativeOrNotFinite) {
  for (const OptimizerKind kind : kEveryOptimizer) {
    ExpectLegal([](TableOptions& options) { options.optimizer.weight_decay = 0.01F; }, kind);
    ExpectConstantRefused("weight_decay", &OptimizerOptions::weight_decay, {kind},
                          {{-0.5F, "-0.5"}, {kNan, "nan"}, {kInfinity, "inf"}});
  }
}

TEST(OptimizerOptions, TakeConstantsAtTheirBounds) {
  const auto expect = [](OptimizerKind kind, const OptimizerOptions& constants) {
    SCOPED_TRACE(ToString(kind));
    ExpectLegal(
        [&](TableOptions& options) {
          options.optimizer = constants;
          options.optimizer.kind = kind;
        },
        kind);
  };
  for (const auto kind : {OptimizerKind::kMomentum, OptimizerKind::kNesterov}) {
    expect(kind, {.momentum = 0.0F});
    expect(kind, {.momentum = 0.999999F});
  }
  expect(OptimizerKind::kRmsProp, {.beta2 = 0.0F});
  expect(OptimizerKind::kAdam, {.beta1 = 0.0F, .beta2 = 0.0F});
  expect(OptimizerKind::kRowWiseAdaGrad, {.epsilon = 1e-45F, .initial_accumulator = 0.0F});
  expect(OptimizerKind::kFtrl, {.ftrl_beta = 1e-6F, .lambda1 = 0.0F, .lambda2 = 0.0F});
}

// Sets other optimizers' constants and initializers' values, all of them unusable.
TEST(OptimizerOptions, IgnoreConstantsOfOtherOptimizers) {
  const auto expect = [](OptimizerKind kind, auto keep_own) {
    SCOPED_TRACE(ToString(kind));
    ExpectLegal(
        [&](TableOptions& options) {
          const OptimizerOptions legal = options.optimizer;
          OptimizerOptions& o = options.optimizer;
          o.epsilon = o.initial_accumulator = o.momentum = o.beta1 = o.beta2 = kNan;
          o.ftrl_beta = o.lambda1 = o.lambda2 = kNan;
          keep_own(o, legal);
        },
        kind);
  };
  using Options = OptimizerOptions;
  expect(OptimizerKind::kSgd, [](Options&, const Options&) {});
  for (const auto kind : {OptimizerKind::kMomentum, OptimizerKind::kNesterov}) {
    expect(kind, [](Options& o, const Options& legal) { o.momentum = legal.momentum; });
  }
  for (const auto kind : {OptimizerKind::kAdaGrad, OptimizerKind::kRowWiseAdaGrad}) {
    expect(kind, [](Options& o, const Options& legal) {
      o.epsilon = legal.epsilon;
      o.initial_accumulator = legal.initial_accumulator;
    });
  }
  for (const auto kind : {OptimizerKind::kRmsProp, OptimizerKind::kAdam}) {
    expect(kind, [kind](Options& o, const Options& legal) {
      o.epsilon = legal.epsilon;
      o.beta2 = legal.beta2;
      if (kind == OptimizerKind::kAdam) o.beta1 = legal.beta1;
    });
  }
  expect(OptimizerKind::kFtrl, [](Options& o, const Options& legal) {
    o.ftrl_beta = legal.ftrl_beta;
    o.lambda1 = legal.lambda1;
    o.lambda2 = legal.lambda2;
  });
}

TEST(InitializerOptions, RefuseAnIntervalOfFirstValuesThatIsNone) {
  ExpectLegal([](TableOptions& options) { options.initializer = {.low = 3, .high = 3, .seed = 0}; });
  ExpectRefused("initializer.low", "0.5",
                [](TableOptions& options) { options.initializer = {.low = 0.5F, .high = 0.25F, .seed = 0}; });
  ExpectRefused("initializer.low", "nan", [](TableOptions& options) { options.initializer.low = kNan; });
  ExpectRefused("initializer.high", "inf",
                [](TableOptions& options) { options.initializer.high = kInfinity; });
  ExpectRefused("initializer.high", "3e+38", [](TableOptions& options) {
    options.initializer = {.low = -3e38F, .high = 3e38F, .seed = 0};  // the interval's length is not a float
  });
}

TEST(InitializerOptions, RefuseAMeanOrDeviationThatMakesNoFirstValues) {
  for (const auto kind : {InitializerKind::kNormal, InitializerKind::kConstant}) {
    ExpectLegal([&](TableOptions& options) { options.initializer = {.kind = kind, .mean = -3.0F}; });
    ExpectLegal([&](TableOptions& options) {
      // The normal and constant initializers ignore the interval.
      options.initializer = {.low = kNan, .high = -kInfinity, .kind = kind, .mean = 3.0F, .deviation = 0.5F};
    });
    for (const auto& [value, text] : {std::pair{kNan, "nan"}, {kInfinity, "inf"}, {-kInfinity, "-inf"}}) {
      const bool normal = kind == InitializerKind::kNormal;
      const char* const field = normal ? "initializer.mean" : "initializer.value";
      ExpectRefused(field, text, [&, mean = value](TableOptions& options) {
        options.initializer = {.kind = kind, .mean = mean};
      });
    }
  }
  for (const auto& [value, text] : {std::pair{kNan, "nan"}, {kInfinity, "inf"}, {-0.5F, "-0.5"}}) {
    ExpectRefused("initializer.deviation", text, [&, deviation = value](TableOptions& options) {
      options.initializer = {.kind = InitializerKind::kNormal, .deviation = deviation};
    });
  }
  // The largest initial value is mean + 5.2947 · deviation, and the smallest is as far below the mean.
  for (const auto& [mean, deviation, text] :
       {std::tuple{0.0F, 6.5e37F, "6.5e+37"}, {3e38F, 1e37F, "1e+37"}, {-3e38F, 1e37F, "1e+37"}}) {
    ExpectRefused(
        "initializer.deviation", text, [&, mean = mean, deviation = deviation](TableOptions& options) {
          options.initializer = {.kind = InitializerKind::kNormal, .mean = mean, .deviation = deviation};
        });
  }
  ExpectLegal([](TableOptions& options) {
    options.initializer = {.kind = InitializerKind::kNormal, .mean = -3e38F, .deviation = 7e36F};
  });
  ExpectLegal([](TableOptions& options) { options.initializer.mean = options.initializer.deviation = kNan; });
  ExpectRefused("initializer.kind", "3",
                [](TableOptions& options) { options.initializer.kind = InitializerKind{3}; });
}

TEST(OptimizerOptions, SayHowManyFloatsAnOptimizerKeeps) {
  for (const std::uint32_t dim : {1U, 16U, TableOptions::kMaxDim}) {
    EXPECT_EQ(StateFloats(OptimizerKind::kSgd, dim), 0U);
    EXPECT_EQ(StateFloats(OptimizerKind::kMomentum, dim), dim);
    EXPECT_EQ(StateFloats(OptimizerKind::kNesterov, dim), dim);
    EXPECT_EQ(StateFloats(OptimizerKind::kAdaGrad, dim), dim);
    EXPECT_EQ(StateFloats(OptimizerKind::kRowWiseAdaGrad, dim), 1U);
    EXPECT_EQ(StateFloats(OptimizerKind::kRmsProp, dim), dim);
    EXPECT_EQ(StateFloats(OptimizerKind::kAdam, dim), 2 * dim);
    EXPECT_EQ(StateFloats(OptimizerKind::kFtrl, dim), 2 * dim);
  }
}

}  // namespace
}  // namespace slotwise
