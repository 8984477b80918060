// Options that cannot make a table are refused with the field and its value.
#include "slotwise/table_options.h"

#include <cmath>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
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
  EXPECT_EQ(ToString(Combiner::kSqrtn), "sqrtn");
  EXPECT_EQ(ToString(OptimizerKind::kMomentum), "momentum");
  EXPECT_EQ(ToString(OptimizerKind::kNesterov), "nesterov");
  EXPECT_EQ(ToString(OptimizerKind::kRowWiseAdaGrad), "rowwise_adagrad");
  EXPECT_EQ(ToString(OptimizerKind::kRmsProp), "rmsprop");
  EXPECT_EQ(ToString(OptimizerKind::kFtrl), "ftrl");
}

}  // namespace
}  // namespace slotwise
