// Illegal table options are refused with the field and its value.
#include "slotwise/table_options.h"

#include <cmath>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "slotwise/table_errors.h"
#include "tests/include/checked_options.h"

namespace slotwise {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(TableOptions, AsTheyBeginLackOnlyNameAndDim) {
  EXPECT_THAT(Validate(TableOptions{}).message(), HasSubstr("name"));
  for (const auto kind : kEveryOptimizer) {
    ExpectLegal([](TableOptions&) {}, kind);
  }
}

TEST(TableOptions, AreRefusedForAllReasonsAtOnce) {
  TableOptions options = LegalOptions();
  options.dim = 0;
  options.slots = 5000;
  options.optimizer.learning_rate = -1;
  options.max_load = 2;
  options.initial_rows = options.max_rows + 1;
  std::vector<std::string> fields;
  for (const Status& error : ErrorsIn(options))
    fields.push_back(error.message().substr(0, error.message().find(' ')));
  EXPECT_EQ(fields, (std::vector<std::string>{"dim", "slots", "max_load", "optimizer.learning_rate",
                                              "initial_rows"}));
  EXPECT_EQ(Validate(options), ErrorsIn(options).front());
  EXPECT_TRUE(ErrorsIn(LegalOptions()).empty());
}

TEST(TableOptions, TakeNamesOf1To255LegalCharacters) {
  for (const std::string name : {"a", "Ads_2024.v-1", "_", "0", "a.b-c", "a/b", "clicks/items.0/_w.-"}) {
    ExpectLegal([&](TableOptions& options) { options.name = TableName(name); });
  }
  ExpectLegal([](TableOptions& options) { options.name = TableName(std::string(255, 'x')); });
}

TEST(TableOptions, RefuseAnyOtherName) {
  for (const std::string name : {"", ".ads", "-ads", "a b", "/", "/a", "a/", "a//b", "a/.b", "a/-b", "a/../b",
                                 "../etc", "a\"b", "ä"}) {
    SCOPED_TRACE("\"" + name + "\"");
    TableOptions options = LegalOptions();
    options.name = TableName(name);
    EXPECT_EQ(Validate(options).code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(Validate(options).message(), StartsWith("name is \""));
  }
  ExpectRefused("name", "\"a//b\"", [](TableOptions& options) { options.name = TableName("a//b"); });
}

TEST(TableOptions, RefuseANameThatIsTooLongThoughItIsCutWhenStored) {
  for (const std::size_t length : {256, 257, 300, 511, 512, 65'535, 65'536, 100'000}) {
    SCOPED_TRACE(std::to_string(length) + " characters");
    TableOptions options = LegalOptions();
    options.name = TableName(std::string(length, 'x'));
    EXPECT_EQ(Validate(options).code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(Validate(options).message(), HasSubstr("name"));
  }
}

TEST(TableOptions, RefuseNamesWithBytesThatCannotBePrintedAndDoNotRepeatThem) {
  TableOptions options = LegalOptions();
  options.name = TableName(std::string_view("a\0b\n\x1b[31m", 9));
  const std::string message = Validate(options).message();
  EXPECT_EQ(Validate(options).code(), StatusCode::kInvalidArgument);
  for (const char c : message) {
    EXPECT_TRUE(c >= ' ' && c <= '~') << "byte " << static_cast<int>(c) << " in the message";
  }
}

TEST(TableOptions, BoundDimAndSlots) {
  ExpectLegal([](TableOptions& options) { options.dim = 1; });
  ExpectLegal([](TableOptions& options) { options.dim = TableOptions::kMaxDim; });
  ExpectLegal([](TableOptions& options) { options.slots = TableOptions::kMaxSlots; });
  ExpectRefused("dim", "0", [](TableOptions& options) { options.dim = 0; });
  ExpectRefused("dim", "4097", [](TableOptions& options) { options.dim = 4097; });
  ExpectRefused("dim", "4294967295", [](TableOptions& options) { options.dim = 0xFFFF'FFFF; });
  ExpectRefused("slots", "0", [](TableOptions& options) { options.slots = 0; });
  ExpectRefused("slots", "4097", [](TableOptions& options) { options.slots = 4097; });
}

TEST(TableOptions, BoundTheLoad) {
  for (const float load : {0.0625F, 0.5F, 0.75F, 0.9375F}) {
    ExpectLegal([=](TableOptions& options) { options.max_load = load; });
  }
  ExpectRefused("max_load", "0", [](TableOptions& options) { options.max_load = 0; });
  ExpectRefused("max_load", "1", [](TableOptions& options) { options.max_load = 1; });
  ExpectRefused("max_load", "nan", [](TableOptions& options) { options.max_load = NAN; });
}

TEST(TableOptions, BoundRows) {
  ExpectLegal([](TableOptions& options) { options.max_rows = 1; });
  ExpectLegal([](TableOptions& options) { options.max_rows = TableOptions::kMaxMaxRows; });
  ExpectLegal([](TableOptions& options) { options.initial_rows = options.max_rows = 1000; });
  ExpectRefused("max_rows", "0", [](TableOptions& options) { options.max_rows = 0; });
  ExpectRefused("max_rows", "1099511627777",
                [](TableOptions& options) { options.max_rows = TableOptions::kMaxMaxRows + 1; });
  ExpectRefused("initial_rows", "1001", [](TableOptions& options) {
    options.max_rows = 1000;
    options.initial_rows = 1001;
  });
}

TEST(TableOptions, RefuseCombinersAndOptimizersThatAreNone) {
  ExpectRefused("combiner", "7", [](TableOptions& options) { options.combiner = Combiner{7}; });
  ExpectRefused("optimizer.kind", "9",
                [](TableOptions& options) { options.optimizer.kind = OptimizerKind{9}; });
  TableOptions options = LegalOptions();
  options.initializer.kind = InitializerKind{3};
  EXPECT_THAT(Validate(options).message(), HasSubstr("must be 0 (uniform), 1 (normal) or 2 (constant)"));
}

TEST(TableOptions, AreEqualWhenEveryFieldIs) {
  EXPECT_EQ(LegalOptions(), LegalOptions());
  TableOptions other = LegalOptions();
  other.initializer.seed = 1;
  EXPECT_NE(LegalOptions(), other);
  other = LegalOptions(OptimizerKind::kAdam);
  other.optimizer.beta1 = 0.5F;
  EXPECT_NE(LegalOptions(OptimizerKind::kAdam), other);
  other = LegalOptions(OptimizerKind::kAdam);
  other.optimizer.lambda1 = 0.5F;  // Adam has none
  EXPECT_EQ(LegalOptions(OptimizerKind::kAdam), other);
  EXPECT_NE(TableName("ads"), TableName("ad"));
  EXPECT_EQ(TableName("ads").view(), "ads");
}

TEST(TableOptions, SpellTheirEnums) {
  EXPECT_EQ(ToString(Combiner::kSum), "sum");
  EXPECT_EQ(ToString(Combiner::kMean), "mean");
  EXPECT_EQ(ToString(OptimizerKind::kSgd), "sgd");
  EXPECT_EQ(ToString(OptimizerKind::kAdaGrad), "adagrad");
  EXPECT_EQ(ToString(OptimizerKind::kAdam), "adam");
  EXPECT_EQ(ToString(Combiner::kSqrtn), "sqrtn");
  EXPECT_EQ(ToString(OptimizerKind::kMomentum), "momentum");
  EXPECT_EQ(ToString(OptimizerKind::kNesterov), "nesterov");
  EXPECT_EQ(ToString(OptimizerKind::kRowWiseAdaGrad), "rowwise_adagrad");
  EXPECT_EQ(ToString(OptimizerKind::kRmsProp), "rmsprop");
  EXPECT_EQ(ToString(OptimizerKind::kFtrl), "ftrl");
}

TEST(FirstDifference, NamesTheOptionAndBothValues) {
  const auto expect = [](const std::function<void(TableOptions&)>& change, std::string_view difference,
                         const TableOptions& there = {}) {
    TableOptions asked = there;
    change(asked);
    ASSERT_NE(there, asked) << difference;
    EXPECT_EQ(FirstDifference(there, asked), difference);
  };
  expect([](TableOptions& o) { o.dim = 8; }, "dim is 0, not 8");
  expect([](TableOptions& o) { o.slots = 2; }, "slots is 1, not 2");
  expect([](TableOptions& o) { o.combiner = Combiner::kMean; }, "combiner is sum, not mean");
  expect([](TableOptions& o) { o.initial_rows = 5; }, "initial_rows is 0, not 5");
  expect([](TableOptions& o) { o.max_rows = 5; }, "max_rows is 1073741824, not 5");
  expect([](TableOptions& o) { o.max_load = 0.25F; }, "max_load is 0.5, not 0.25");

  using Kind = OptimizerKind;
  const auto optimizer = [&](Kind kind, auto OptimizerOptions::*option, auto value,
                             std::string_view difference) {
    TableOptions there;
    there.optimizer.kind = kind;
    expect([&](TableOptions& o) { o.optimizer.*option = value; }, "optimizer" + std::string(difference),
           there);
  };
  using O = OptimizerOptions;
  optimizer(Kind::kSgd, &O::kind, Kind::kAdam, " is sgd, not adam");
  optimizer(Kind::kSgd, &O::learning_rate, 0.5F, ".learning_rate is 0.01, not 0.5");
  optimizer(Kind::kSgd, &O::weight_decay, 0.5F, ".weight_decay is 0, not 0.5");
  optimizer(Kind::kRmsProp, &O::epsilon, 0.5F, ".epsilon is 1e-10, not 0.5");
  optimizer(Kind::kRmsProp, &O::beta2, 0.5F, ".beta is 0.999, not 0.5");
  optimizer(Kind::kAdaGrad, &O::initial_accumulator, 0.5F, ".initial_accumulator is 0, not 0.5");
  optimizer(Kind::kNesterov, &O::momentum, 0.5F, ".momentum is 0.9, not 0.5");
  optimizer(Kind::kAdam, &O::beta1, 0.5F, ".beta1 is 0.9, not 0.5");
  optimizer(Kind::kAdam, &O::beta2, 0.5F, ".beta2 is 0.999, not 0.5");
  optimizer(Kind::kAdam, &O::corrected_epsilon, true, ".corrected_epsilon is false, not true");
  optimizer(Kind::kAdam, &O::decoupled_decay, true, ".decoupled_decay is false, not true");
  optimizer(Kind::kFtrl, &O::ftrl_beta, 0.5F, ".beta is 1, not 0.5");
  optimizer(Kind::kFtrl, &O::lambda1, 0.5F, ".lambda1 is 0, not 0.5");
  optimizer(Kind::kFtrl, &O::lambda2, 0.5F, ".lambda2 is 0, not 0.5");

  const auto schedule = [&](auto ScheduleOptions::*option, auto value, std::string_view difference) {
    expect([&](TableOptions& o) { o.optimizer.schedule.*option = value; },
           "optimizer.schedule." + std::string(difference));
  };
  using S = ScheduleOptions;
  schedule(&S::warmup_steps, 3U, "warmup_steps is 0, not 3");
  schedule(&S::decay_start, 3U, "decay_start is 0, not 3");
  schedule(&S::decay_steps, 3U, "decay_steps is 0, not 3");
  schedule(&S::decay_power, 1.0F, "decay_power is 2, not 1");
  schedule(&S::end_learning_rate, 0.5F, "end_learning_rate is 0, not 0.5");

  const auto initializer = [&](InitializerKind kind, auto InitializerOptions::*option, auto value,
                               std::string_view difference) {
    TableOptions there;
    there.initializer.kind = kind;
    expect([&](TableOptions& o) { o.initializer.*option = value; }, "initializer" + std::string(difference),
           there);
  };
  using I = InitializerOptions;
  initializer(InitializerKind::kUniform, &I::kind, InitializerKind::kNormal, " is uniform, not normal");
  initializer(InitializerKind::kUniform, &I::seed, 7U, ".seed is 0, not 7");
  initializer(InitializerKind::kUniform, &I::low, -1.0F, ".low is -0.05, not -1");
  initializer(InitializerKind::kUniform, &I::high, 1.0F, ".high is 0.05, not 1");
  initializer(InitializerKind::kConstant, &I::mean, 1.0F, ".value is 0, not 1");
  initializer(InitializerKind::kNormal, &I::mean, 1.0F, ".mean is 0, not 1");
  initializer(InitializerKind::kNormal, &I::deviation, 1.0F, ".deviation is 0, not 1");

  EXPECT_EQ(FirstDifference({}, {}), "");
  // The first of several.
  expect([](TableOptions& o) { o.dim = 9, o.slots = 9; }, "dim is 0, not 9");
}

TEST(TableOptions, AreAlteredInWhatIsGiven) {
  TableOptions made;
  made.name = TableName("ads");
  made.dim = 4;
  made.initial_rows = 500;
  made.max_rows = 1000;
  made.ttl_steps = 7;
  EXPECT_EQ(Altered(made, made, {}), made);
  const TableAlteration all{.max_rows = 300,
                            .eviction = EvictionOptions{.score = ScoreKind::kLfu, .to = 0.5F},
                            .ttl_steps = 0,
                            .ttl_seconds = 60,
                            .admission = AdmissionOptions{.kind = AdmissionKind::kFrequency, .threshold = 3}};
  TableOptions now = Altered(made, made, all);
  EXPECT_EQ(now.max_rows, 300U);
  EXPECT_EQ(now.initial_rows, 300U) << "as far as max_rows allows";
  EXPECT_EQ(now.eviction, *all.eviction);
  EXPECT_EQ(now.ttl_steps, 0U);
  EXPECT_EQ(now.ttl_seconds, 60U);
  EXPECT_EQ(now.admission, *all.admission);
  EXPECT_EQ(Altered(made, now, all), now);
  EXPECT_EQ(Altered(made, now, {.max_rows = 2000}).initial_rows, 500U) << "those of the making again";
  now = Altered(made, now,
                {.max_rows = 1000,
                 .eviction = EvictionOptions{},
                 .ttl_steps = 7,
                 .ttl_seconds = 0,
                 .admission = AdmissionOptions{}});
  EXPECT_EQ(now, made);
}

TEST(TableOptions, HaveOneOfTwoCountersOfKeysWithoutARow) {
  TableOptions options;
  options.name = TableName("ads");
  options.dim = 4;
  options.admission = {
      .kind = AdmissionKind::kFrequency, .threshold = 255, .counter = CounterKind::kBloom, .counter_mib = 3};
  const TableOptions good = options;
  EXPECT_TRUE(Validate(good).ok()) << Validate(good).message();
  const auto refuses = [&](auto change, const std::string& why) {
    TableOptions bad = good;
    change(bad.admission);
    EXPECT_EQ(Validate(bad).code(), StatusCode::kInvalidArgument);
    EXPECT_NE(Validate(bad).message().find(why), std::string::npos) << Validate(bad).message();
  };
  refuses([](auto& a) { a.threshold = 256; }, "admission.threshold is 256: must be at most 255");
  refuses([](auto& a) { a.threshold = 0; }, "admission.threshold is 0");
  refuses([](auto& a) { a.max_keys = 9; },
          "admission.max_keys is 9: must be 0, because the counter is bloom");
  refuses([](auto& a) { a.counter_mib = 0; }, "admission.counter_mib is 0: must be 1 to 131072");
  refuses([](auto& a) { a.counter_mib = BloomCounter::kMaxMib + 1; }, "admission.counter_mib is 131073");
  refuses([](auto& a) { a.counter = CounterKind::kExact; },
          "admission.counter_mib is 3: must be 0, because the counter is exact");
  refuses([](auto& a) { a.counter = static_cast<CounterKind>(2); },
          "admission.counter is 2: must be 0 (exact) or 1 (bloom)");

  const TableOptions blocks = CandidatesOf(good);
  EXPECT_TRUE(Validate(blocks).ok()) << Validate(blocks).message();
  EXPECT_EQ(blocks.max_rows, 3U * (1 << 20) / 64);
  EXPECT_EQ(blocks.initial_rows, blocks.max_rows);
  EXPECT_FALSE(blocks.has_scores());
  const auto alters = [&](auto change) {
    TableOptions other = good;
    change(other.admission);
    EXPECT_NE(FirstDifference(good, other), "");
    EXPECT_TRUE(DifferByAlteration(good, other));
    EXPECT_EQ(KeepsCounts(good, other), KeepsCounts(other, good));
    return !KeepsCounts(good, other);
  };
  EXPECT_FALSE(alters([](auto& a) { a.threshold = 9; }));
  EXPECT_FALSE(alters([](auto& a) { a.absent = AbsentRows::kZeros; }));
  EXPECT_TRUE(alters([](auto& a) { a.counter_mib = 4; }));
  EXPECT_TRUE(alters([](auto& a) { a.counter = CounterKind::kExact, a.counter_mib = 0; }));
  EXPECT_TRUE(alters([](auto& a) { a = {.kind = AdmissionKind::kProbability, .probability = 0.5F}; }));
  EXPECT_TRUE(alters([](auto& a) { a = {}; }));
}

TEST(TableOptions, DifferByAnAlterationOrByMore) {
  TableOptions one;
  one.name = TableName("ads");
  one.dim = 4;
  const auto differs = [&](auto change) {
    TableOptions other = one;
    change(other);
    EXPECT_EQ(DifferByAlteration(one, other), DifferByAlteration(other, one));
    return DifferByAlteration(one, other);
  };
  EXPECT_TRUE(differs([](TableOptions& o) { o.max_rows = 5; }));
  EXPECT_TRUE(differs([](TableOptions& o) { o.initial_rows = 5; }));
  EXPECT_TRUE(differs([](TableOptions& o) { o.eviction.score = ScoreKind::kLfu; }));
  EXPECT_TRUE(differs([](TableOptions& o) { o.ttl_steps = o.ttl_seconds = 5; }));
  EXPECT_TRUE(differs([](TableOptions& o) { o.admission.kind = AdmissionKind::kFrequency; }));
  EXPECT_FALSE(differs([](TableOptions& o) { o.name = TableName("users"); }));
  EXPECT_FALSE(differs([](TableOptions& o) { o.dim = 5; }));
  EXPECT_FALSE(differs([](TableOptions& o) { o.slots = 5; }));
  EXPECT_FALSE(differs([](TableOptions& o) { o.combiner = Combiner::kMean; }));
  EXPECT_FALSE(differs([](TableOptions& o) { o.optimizer.kind = OptimizerKind::kAdam; }));
  EXPECT_FALSE(differs([](TableOptions& o) { o.optimizer.learning_rate = 5; }));
  EXPECT_FALSE(differs([](TableOptions& o) { o.initializer.seed = 5; }));
  EXPECT_FALSE(differs([](TableOptions& o) { o.max_load = 0.25F; }));
  EXPECT_FALSE(differs([](TableOptions& o) { o.row_dtype = DataType::kFloat16; }));
  EXPECT_FALSE(differs([](TableOptions& o) { o.rounding = Rounding::kNearest; }));
}

TEST(TableOptions, KeepRowsWhereScoresStayAndTheBoundDoesNotFall) {
  const auto of = [](ScoreKind score, std::uint64_t ttl, std::uint64_t max_rows) {
    TableOptions options;
    options.eviction.score = score;
    options.ttl_steps = ttl;
    options.max_rows = max_rows;
    return options;
  };
  EXPECT_TRUE(KeepsRows(of(ScoreKind::kNone, 0, 5), of(ScoreKind::kNone, 0, 6)));
  EXPECT_FALSE(KeepsRows(of(ScoreKind::kNone, 0, 6), of(ScoreKind::kNone, 0, 5)));
  EXPECT_TRUE(KeepsRows(of(ScoreKind::kLfu, 0, 5), of(ScoreKind::kStepLfu, 9, 5)));
  EXPECT_TRUE(KeepsRows(of(ScoreKind::kNone, 9, 5), of(ScoreKind::kStep, 0, 5)));
  EXPECT_FALSE(KeepsRows(of(ScoreKind::kNone, 0, 5), of(ScoreKind::kNone, 9, 5)));
  EXPECT_FALSE(KeepsRows(of(ScoreKind::kStep, 0, 5), of(ScoreKind::kNone, 0, 5)));
  EXPECT_FALSE(KeepsRows(of(ScoreKind::kStep, 0, 5), of(ScoreKind::kLfu, 0, 5)));
  EXPECT_FALSE(KeepsRows(of(ScoreKind::kLfu, 0, 5), of(ScoreKind::kNone, 9, 5)));
}

}  // namespace
}  // namespace slotwise
