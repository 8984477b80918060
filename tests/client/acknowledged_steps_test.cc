// A client notices when a table no longer has what the client saw acknowledged, and only then.
#include "client/cpp/acknowledged_steps.h"

#include <gtest/gtest.h>

#include <string>

namespace slotwise::client {
namespace {

TEST(AcknowledgedSteps, ExpectsNothingOfATableThatNobodyPushedTo) {
  AcknowledgedSteps steps;
  EXPECT_EQ(steps.Of("ads").step, 0U);
  EXPECT_TRUE(steps.Check("ads", steps.Of("ads"), {7, 0}).ok());
  EXPECT_TRUE(steps.Check("ads", steps.Of("ads"), {8, 3}).ok());
}

TEST(AcknowledgedSteps, FindsEverythingInALaterStateOfTheSameLineage) {
  AcknowledgedSteps steps;
  steps.Acknowledge("ads", {7, 5});
  EXPECT_TRUE(steps.Check("ads", steps.Of("ads"), {7, 5}).ok());
  EXPECT_TRUE(steps.Check("ads", steps.Of("ads"), {7, 6}).ok());
  EXPECT_TRUE(steps.Check("ads", steps.Of("ads"), {0, 0}).ok()) << "the server does not say";
}

TEST(AcknowledgedSteps, MissesThemInAnotherLineage) {
  AcknowledgedSteps steps;
  steps.Acknowledge("ads", {7, 5});
  steps.Acknowledge("users", {9, 2});
  const TableState before = steps.Of("ads");
  const Status lost = steps.Check("ads", before, {8, 6});
  EXPECT_EQ(lost.code(), StatusCode::kDataLoss);
  EXPECT_NE(lost.message().find("step 5 acknowledged"), std::string::npos) << lost.message();
  // A call that had begun before is told too; one that begins now is not.
  EXPECT_EQ(steps.Check("ads", before, {8, 6}).code(), StatusCode::kDataLoss);
  EXPECT_TRUE(steps.Check("ads", steps.Of("ads"), {8, 6}).ok());
  EXPECT_EQ(steps.Of("users").step, 2U);
}

TEST(AcknowledgedSteps, MissesThemInAnEarlierState) {
  AcknowledgedSteps steps;
  steps.Acknowledge("ads", {7, 5});
  const Status lost = steps.Check("ads", steps.Of("ads"), {7, 3});
  EXPECT_EQ(lost.code(), StatusCode::kDataLoss);
  EXPECT_NE(lost.message().find("steps 4 to 5"), std::string::npos) << lost.message();
}

TEST(AcknowledgedSteps, ComparesWithWhatWasAcknowledgedWhenTheCallBegan) {
  AcknowledgedSteps steps;
  steps.Acknowledge("ads", {7, 5});
  const TableState before = steps.Of("ads");
  steps.Acknowledge("ads", {7, 6});
  EXPECT_TRUE(steps.Check("ads", before, {7, 5}).ok()) << "the lookup was served before the push";
  steps.Acknowledge("ads", {7, 4});
  EXPECT_EQ(steps.Of("ads").step, 6U) << "answers may come in any order";
}

TEST(AcknowledgedSteps, GoesOnWithTheTableAsItIs) {
  AcknowledgedSteps steps;
  steps.Acknowledge("ads", {7, 5});
  const TableState before = steps.Of("ads");
  EXPECT_FALSE(steps.Check("ads", before, {8, 1}).ok());
  steps.Acknowledge("ads", {8, 1});
  EXPECT_FALSE(steps.Check("ads", before, {8, 2}).ok());
  EXPECT_EQ(steps.Of("ads").lineage, 8U) << "the second complaint forgets nothing of the new state";
  EXPECT_FALSE(steps.Check("ads", steps.Of("ads"), {9, 1}).ok());
}

TEST(AcknowledgedSteps, ForgetsATableThatTheCallerDrops) {
  AcknowledgedSteps steps;
  steps.Acknowledge("ads", {7, 5});
  steps.Forget("ads");
  EXPECT_TRUE(steps.Check("ads", steps.Of("ads"), {8, 0}).ok());
}

}  // namespace
}  // namespace slotwise::client
