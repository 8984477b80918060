// Steps with missing parts are found by name and leave in order of arrival.
#include "server/engine/schedule/incomplete_steps.h"

#include <gtest/gtest.h>

namespace slotwise {
namespace {

constexpr TableId kAds{1};
constexpr TableId kUsers{2};

std::vector<std::uint64_t> Arrivals(const std::vector<IncompleteStep>& steps) {
  std::vector<std::uint64_t> arrivals;
  for (const IncompleteStep& step : steps) arrivals.push_back(step.arrival);
  return arrivals;
}

// Arrivals 0 to 3.
IncompleteSteps FourSteps() {
  IncompleteSteps steps;
  steps.Add({kUsers, 5, 1}, 2, 10);
  steps.Add({kAds, 9, 7}, 2, 20);
  steps.Add({kAds, 9, 6}, 3, 20);
  steps.Add({kUsers, 4, 1}, 2, 30);
  return steps;
}

TEST(IncompleteSteps, FindsAStepByItsName) {
  IncompleteSteps steps = FourSteps();
  ASSERT_NE(steps.Find({kAds, 9, 6}), nullptr);
  EXPECT_EQ(steps.Find({kAds, 9, 6})->parts, 3U);
  EXPECT_EQ(steps.Find({kUsers, 9, 6}), nullptr);
  EXPECT_EQ(steps.Find({kAds, 9, 5}), nullptr);
}

TEST(IncompleteSteps, GivesDueStepsInTheOrderInWhichTheyCame) {
  IncompleteSteps steps = FourSteps();
  EXPECT_TRUE(steps.TakeDue(9).empty());
  EXPECT_EQ(Arrivals(steps.TakeDue(20)), (std::vector<std::uint64_t>{0, 1, 2}));
  EXPECT_EQ(steps.Find({kAds, 9, 7}), nullptr);
  EXPECT_EQ(Arrivals(steps.TakeAll()), (std::vector<std::uint64_t>{3}));
  EXPECT_TRUE(steps.empty());
}

TEST(IncompleteSteps, AwaitsTheFirstThatIsNotTooLarge) {
  IncompleteSteps steps = FourSteps();
  EXPECT_EQ(steps.First(), (StepKey{kUsers, 5, 1}));
  steps.MarkTooLarge({kUsers, 5, 1});
  EXPECT_EQ(steps.First(), (StepKey{kAds, 9, 7}));
  steps.Take({kAds, 9, 7});
  EXPECT_EQ(steps.First(), (StepKey{kAds, 9, 6}));
  EXPECT_EQ(Arrivals(steps.TakeDue(10)), (std::vector<std::uint64_t>{0}))
      << "a step too large keeps its deadline";
}

TEST(IncompleteSteps, GivesATablesStepsAndNoOthers) {
  IncompleteSteps steps = FourSteps();
  EXPECT_EQ(Arrivals(steps.TakeAllOf(kAds)), (std::vector<std::uint64_t>{2, 1})) << "by name";
  EXPECT_EQ(steps.First(), (StepKey{kUsers, 5, 1}));
  EXPECT_EQ(Arrivals(steps.TakeAll()), (std::vector<std::uint64_t>{0, 3}));
}

TEST(IncompleteSteps, ForgetsTheTablesOfAStepOfSeveralWhicheverWayItLeaves) {
  IncompleteSteps steps;
  const auto add = [&](std::uint64_t number) {
    const StepKey key{TableId{0}, 9, number};
    IncompleteStep& step = steps.Add(key, 1, 10 * number, 2);
    EXPECT_NE(steps.ShareOf(key, step, 0, kAds), nullptr);
    EXPECT_NE(steps.ShareOf(key, step, 1, kUsers), nullptr);
    EXPECT_EQ(steps.ShareOf(key, step, 1, kAds), nullptr);
    return key;
  };
  for (std::uint64_t number = 1; number <= 5; ++number) add(number);
  EXPECT_EQ(steps.TakeDue(20).size(), 2U);
  steps.Take({TableId{0}, 9, 3});
  EXPECT_EQ(Arrivals(steps.TakeAllOf(kUsers)), (std::vector<std::uint64_t>{3, 4}));
  add(6);
  EXPECT_EQ(steps.TakeAll().size(), 1U);
  EXPECT_TRUE(steps.TakeAllOf(kAds).empty());
  EXPECT_TRUE(steps.TakeAllOf(kUsers).empty());
}

TEST(IncompleteSteps, HashesToTheSameForTheSameSteps) {
  const auto hash = [](const IncompleteSteps& steps) {
    Fingerprint fingerprint;
    steps.AddTo(fingerprint);
    return fingerprint.value();
  };
  IncompleteSteps steps = FourSteps();
  EXPECT_EQ(hash(steps), hash(FourSteps()));
  IncompleteStep& step = *steps.Find({kAds, 9, 7});
  steps.ShareOf({kAds, 9, 7}, step, 0, kAds)->waiters.push_back({Rank{1}, 4});
  EXPECT_NE(hash(steps), hash(FourSteps()));
}

}  // namespace
}  // namespace slotwise
