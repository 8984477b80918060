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
  EXPECT_EQ(lost.message(),
            "table ads was made anew: it was dropped, a checkpoint's was put in its place, or the server "
            "started without it; of the former table this client saw step 5 acknowledged, and the new one is "
            "at step 6, a count that pushes since have made, or that came with an import or a checkpoint");
  // A call that had begun before is told too; one that begins now is not.
  EXPECT_EQ(steps.Check("ads", before, {8, 6}).code(), StatusCode::kDataLoss);
  EXPECT_TRUE(steps.Check("ads", steps.Of("ads"), {8, 6}).ok());
  EXPECT_EQ(steps.Of("users").step, 2U);
}

TEST(AcknowledgedSteps, KnowsThatTheServerHadTheTableWhereItDidNotStartSince) {
  const auto lost = [](std::uint64_t before, std::uint64_t met) {
    AcknowledgedSteps steps;
    steps.Acknowledge("ads", {7, 5, before});
    return steps.Check("ads", steps.Of("ads"), {8, 0, met}).message();
  };
  const std::string dropped = "table ads was dropped and made anew, or a checkpoint's was put in its place; ";
  EXPECT_EQ(lost(3, 3), dropped +
                            "of the former table this client saw step 5 acknowledged, and the new one "
                            "is at step 0");
  for (const std::string& message : {lost(3, 4), lost(3, 0), lost(0, 0)})
    EXPECT_NE(message.find("or the server started without it; "), std::string::npos) << message;
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

TEST(AcknowledgedSteps, MissesWhatTheServerSaysIsLostThoughTheCountIsMadeUp) {
  AcknowledgedSteps steps;
  steps.Acknowledge("ads", {7, 5, 1});
  const TableState before = steps.Of("ads");
  EXPECT_TRUE(steps.Check("ads", before, {7, 9, 2, 0}).ok());
  EXPECT_TRUE(steps.Check("ads", before, {7, 9, 2, 6}).ok()) << "what is lost is another's";
  EXPECT_EQ(steps.Check("ads", before, {7, 9, 2, 4}).message(),
            "table ads has lost its steps 4 to 5: this client saw its step 5 acknowledged, and the server's "
            "table went on from step 3, and is at step 9");
  EXPECT_EQ(steps.Of("ads").step, 0U);
  EXPECT_EQ(steps.Check("ads", before, {7, 3, 2, 4}).message(),
            "table ads has lost its steps 4 to 5: this client saw its step 5 acknowledged, and the server's "
            "table is at step 3");
  EXPECT_NE(steps.Check("ads", before, {7, 2, 2, 4}).message().find("steps 3 to 5"), std::string::npos);
}

TEST(AcknowledgedSteps, KeepsWhatTheNextStartAcknowledgedThroughComplaintsAboutTheOneBefore) {
  AcknowledgedSteps steps;
  steps.Acknowledge("ads", {7, 5, 1});
  const TableState before = steps.Of("ads");
  EXPECT_FALSE(steps.Check("ads", before, {7, 4, 2, 4}).ok());
  steps.Acknowledge("ads", {7, 4, 2});
  EXPECT_FALSE(steps.Check("ads", before, {7, 5, 2, 4}).ok()) << "another call that began before";
  EXPECT_EQ(steps.Of("ads").step, 4U);
}

TEST(AcknowledgedSteps, ForgetsATableThatTheCallerDrops) {
  AcknowledgedSteps steps;
  steps.Acknowledge("ads", {7, 5});
  steps.Forget("ads");
  EXPECT_TRUE(steps.Check("ads", steps.Of("ads"), {8, 0}).ok());
}

}  // namespace
}  // namespace slotwise::client
