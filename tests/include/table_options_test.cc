// Options that make no table are refused with the field and its value.
#include "slotwise/table_options.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace slotwise {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TableOptions LegalOptions(OptimizerKind kind = OptimizerKind::kSgd) {
  TableOptions options;
  options.name = TableName("ads");
  options.dim = 16;
  options.optimizer.kind = kind;
  return options;
}

// That LegalOptions(kind), changed by `change`, are refused with a message "<field> is <value>: ...".
void ExpectRefused(const std::string& field, const std::string& value,
                   const std::function<void(TableOptions&)>& change,
                   OptimizerKind kind = OptimizerKind::kSgd) {
  SCOPED_TRACE(field + " = " + value);
  TableOptions options = LegalOptions(kind);
  change(options);
  const Status status = Validate(options);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), StartsWith(field + " is " + value));
}

void ExpectLegal(const std::function<void(TableOptions&)>& change, OptimizerKind kind = OptimizerKind::kSgd) {
  TableOptions options = LegalOptions(kind);
  change(options);
  EXPECT_TRUE(Validate(options).ok()) << Validate(options).message();
}

TEST(TableOptions, AsTheyBeginLackOnlyNameAndDim) {
  EXPECT_THAT(Validate(TableOptions{}).message(), HasSubstr("name"));
  for (const auto kind : {OptimizerKind::kSgd, OptimizerKind::kAdaGrad, OptimizerKind::kAdam}) {
    ExpectLegal([](TableOptions&) {}, kind);
  }
}

TEST(TableOptions, TakeNamesOf1To63LegalCharacters) {
  for (const std::string name : {"a", "Ads_2024.v-1", "_", "0", "a.b-c"}) {
    ExpectLegal([&](TableOptions& options) { options.name = TableName(name); });
  }
  ExpectLegal([](TableOptions& options) { options.name = TableName(std::string(63, 'x')); });
}

TEST(TableOptions, RefuseAnyOtherName) {
  for (const std::string name : {"", ".ads", "-ads", "a b", "a/b", "../etc", "a\"b", "ä"}) {
    SCOPED_TRACE("\"" + name + "\"");
    TableOptions options = LegalOptions();
    options.name = TableName(name);
    EXPECT_EQ(Validate(options).code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(Validate(options).message(), StartsWith("name is \""));
  }
  ExpectRefused("name", "\"a/b\"", [](TableOptions& options) { options.name = TableName("a/b"); });
}

TEST(TableOptions, RefuseANameThatIsTooLongThoughItIsCutWhenStored) {
  for (const std::size_t length : {64, 65, 255, 256, 257, 300, 319, 100'000}) {
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
}

TEST(TableOptions, RefuseALearningRateThatIsNotAboveZeroAndFinite) {
  for (const auto kind : {OptimizerKind::kSgd, OptimizerKind::kAdaGrad, OptimizerKind::kAdam}) {
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

TEST(TableOptions, RefuseConstantsThatTheirOptimizerCannotUse) {
  using Change = std::function<void(TableOptions&)>;
  for (const auto kind : {OptimizerKind::kAdaGrad, OptimizerKind::kAdam}) {
    ExpectRefused(
        "optimizer.epsilon", "0", [](TableOptions& options) { options.optimizer.epsilon = 0; }, kind);
    ExpectRefused(
        "optimizer.epsilon", "-1", [](TableOptions& options) { options.optimizer.epsilon = -1; }, kind);
    ExpectRefused(
        "optimizer.epsilon", "nan", [](TableOptions& options) { options.optimizer.epsilon = kNan; }, kind);
  }
  const Change negative = [](TableOptions& options) { options.optimizer.initial_accumulator = -0.5F; };
  ExpectRefused("optimizer.initial_accumulator", "-0.5", negative, OptimizerKind::kAdaGrad);
  ExpectRefused(
      "optimizer.beta1", "1", [](TableOptions& options) { options.optimizer.beta1 = 1; },
      OptimizerKind::kAdam);
  ExpectRefused(
      "optimizer.beta1", "-0.5", [](TableOptions& options) { options.optimizer.beta1 = -0.5F; },
      OptimizerKind::kAdam);
  ExpectRefused(
      "optimizer.beta2", "1", [](TableOptions& options) { options.optimizer.beta2 = 1; },
      OptimizerKind::kAdam);
  ExpectRefused(
      "optimizer.beta2", "nan", [](TableOptions& options) { options.optimizer.beta2 = kNan; },
      OptimizerKind::kAdam);
}

TEST(TableOptions, IgnoreConstantsOfOtherOptimizers) {
  ExpectLegal([](TableOptions& options) {
    options.optimizer.epsilon = kNan;
    options.optimizer.beta1 = 5;
    options.optimizer.initial_accumulator = -1;
  });
  ExpectLegal([](TableOptions& options) { options.optimizer.beta2 = -1; }, OptimizerKind::kAdaGrad);
  ExpectLegal([](TableOptions& options) { options.optimizer.initial_accumulator = -1; },
              OptimizerKind::kAdam);
}

TEST(TableOptions, RefuseAnIntervalOfFirstValuesThatIsNone) {
  ExpectLegal([](TableOptions& options) { options.initializer = {.low = 3, .high = 3, .seed = 0}; });
  ExpectRefused("initializer.low", "0.5",
                [](TableOptions& options) { options.initializer = {.low = 0.5F, .high = 0.25F, .seed = 0}; });
  ExpectRefused("initializer.low", "nan", [](TableOptions& options) { options.initializer.low = kNan; });
  ExpectRefused("initializer.high", "inf",
                [](TableOptions& options) { options.initializer.high = kInfinity; });
  ExpectRefused("initializer.high", "3e+38", [](TableOptions& options) {
    options.initializer = {.low = -3e38F, .high = 3e38F, .seed = 0};  // their distance is no float
  });
}

TEST(TableOptions, AreEqualWhenEveryFieldIs) {
  EXPECT_EQ(LegalOptions(), LegalOptions());
  TableOptions other = LegalOptions();
  other.initializer.seed = 1;
  EXPECT_NE(LegalOptions(), other);
  EXPECT_NE(TableName("ads"), TableName("ad"));
  EXPECT_EQ(TableName("ads").view(), "ads");
}

TEST(TableOptions, SpellTheirEnums) {
  EXPECT_EQ(ToString(Combiner::kSum), "sum");
  EXPECT_EQ(ToString(Combiner::kMean), "mean");
  EXPECT_EQ(ToString(OptimizerKind::kSgd), "sgd");
  EXPECT_EQ(ToString(OptimizerKind::kAdaGrad), "adagrad");
  EXPECT_EQ(ToString(OptimizerKind::kAdam), "adam");
}

}  // namespace
}  // namespace slotwise
