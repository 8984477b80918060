// A client notices when a table has lost a state that the client saw acknowledged, and only then. It also
// knows which state its lookups have read.
#include "client/cpp/table_states.h"

#include <gtest/gtest.h>

#include <string>

namespace slotwise::client {
namespace {

// A client that saw step 5 of the generation 7 acknowledged, by the server's first start.
class AcknowledgedSteps : public testing::Test {
 protected:
  AcknowledgedSteps() {
    steps_.Acknowledge("ads", {7, 5, 1});
    before_ = steps_.Acknowledged("ads");
  }

  // Checks an answer to a call that began then, or begins now.
  Status Check(const TableState& found) { return steps_.Check("ads", before_, found); }
  Status CheckNow(const TableState& found) { return steps_.Check("ads", steps_.Acknowledged("ads"), found); }

  TableStates steps_;
  TableState before_;
};

TEST_F(AcknowledgedSteps, AreNoneOfATableWithoutPushes) {
  EXPECT_EQ(steps_.Acknowledged("users").step, 0U);
  EXPECT_TRUE(steps_.Check("users", steps_.Acknowledged("users"), {7, 0}).ok());
  EXPECT_TRUE(steps_.Check("users", steps_.Acknowledged("users"), {8, 3}).ok());
}

TEST_F(AcknowledgedSteps, AreInALaterStateOfTheSameGenerationAndNotInAnEarlierOne) {
  EXPECT_TRUE(CheckNow({7, 5}).ok());
  EXPECT_TRUE(CheckNow({7, 6}).ok());
  EXPECT_TRUE(CheckNow({0, 0}).ok()) << "the server does not say";
  const Status lost = CheckNow({7, 3});
  EXPECT_EQ(lost.code(), StatusCode::kDataLoss);
  EXPECT_NE(lost.message().find("steps 4 to 5"), std::string::npos) << lost.message();
}

TEST_F(AcknowledgedSteps, MissesThemInAnotherGeneration) {
  steps_.Acknowledge("users", {9, 2});
  const Status lost = Check({8, 6});
  EXPECT_EQ(lost.code(), StatusCode::kDataLoss);
  EXPECT_EQ(lost.message(),
            "table ads was made anew: it was dropped, a checkpoint's was put in its place, or the server "
            "started without it; of the former table this client saw step 5 acknowledged, and the new one is "
            "at step 6, a count that pushes since have made, or that came with an import or a checkpoint");
  // A call that had begun before is told too; one that begins now is not.
  EXPECT_EQ(Check({8, 6}).code(), StatusCode::kDataLoss);
  EXPECT_TRUE(CheckNow({8, 6}).ok());
  EXPECT_EQ(steps_.Acknowledged("users").step, 2U);
}

TEST_F(AcknowledgedSteps, KnowsThatTheServerHadTheTableWhereItDidNotStartSince) {
  const auto lost = [](std::uint64_t before, std::uint64_t met) {
    TableStates steps;
    steps.Acknowledge("ads", {7, 5, before});
    return steps.Check("ads", steps.Acknowledged("ads"), {8, 0, met}).message();
  };
  const std::string dropped = "table ads was dropped and made anew, or a checkpoint's was put in its place; ";
  EXPECT_EQ(lost(3, 3), dropped +
                            "of the former table this client saw step 5 acknowledged, and the new one "
                            "is at step 0");
  for (const std::string& message : {lost(3, 4), lost(3, 0), lost(0, 0)})
    EXPECT_NE(message.find("or the server started without it; "), std::string::npos) << message;
}

TEST_F(AcknowledgedSteps, ComparesWithWhatWasAcknowledgedWhenTheCallBegan) {
  steps_.Acknowledge("ads", {7, 6});
  EXPECT_TRUE(Check({7, 5}).ok()) << "the lookup was served before the push";
  steps_.Acknowledge("ads", {7, 4});
  EXPECT_EQ(steps_.Acknowledged("ads").step, 6U) << "answers may come in any order";
}

TEST_F(AcknowledgedSteps, GoesOnWithTheTableAsItIs) {
  EXPECT_FALSE(Check({8, 1}).ok());
  steps_.Acknowledge("ads", {8, 1});
  EXPECT_FALSE(Check({8, 2}).ok());
  EXPECT_EQ(steps_.Acknowledged("ads").generation, 8U)
      << "the second complaint forgets nothing of the new state";
  EXPECT_FALSE(CheckNow({9, 1}).ok());
}

TEST_F(AcknowledgedSteps, MissesWhatTheServerSaysIsLostThoughTheCountIsMadeUp) {
  EXPECT_TRUE(Check({7, 9, 2, 0}).ok());
  EXPECT_TRUE(Check({7, 9, 2, 6}).ok()) << "what is lost is another's";
  EXPECT_EQ(Check({7, 9, 2, 4}).message(),
            "table ads has lost its steps 4 to 5: this client saw its step 5 acknowledged, and the server's "
            "table went on from step 3, and is at step 9");
  EXPECT_EQ(steps_.Acknowledged("ads").step, 0U);
  EXPECT_EQ(Check({7, 3, 2, 4}).message(),
            "table ads has lost its steps 4 to 5: this client saw its step 5 acknowledged, and the server's "
            "table is at step 3");
  EXPECT_NE(Check({7, 2, 2, 4}).message().find("steps 3 to 5"), std::string::npos);
}

TEST_F(AcknowledgedSteps, KeepsWhatTheNextStartAcknowledgedThroughComplaintsAboutTheOneBefore) {
  EXPECT_FALSE(Check({7, 4, 2, 4}).ok());
  steps_.Acknowledge("ads", {7, 4, 2});
  EXPECT_FALSE(Check({7, 5, 2, 4}).ok()) << "another call that began before";
  EXPECT_EQ(steps_.Acknowledged("ads").step, 4U);
}

TEST(LookedUp, IsTheLatestStateOfEachTable) {
  TableStates states;
  EXPECT_EQ(states.LookedUp("ads").generation, 0U);
  states.NoteLookup("ads", {7, 5});
  states.NoteLookup("users", {9, 1});
  states.NoteLookup("ads", {7, 3});
  EXPECT_EQ(states.LookedUp("ads").step, 3U) << "an earlier state may be read later";
  states.NoteLookup("ads", {8, 0});
  EXPECT_EQ(states.LookedUp("ads").generation, 8U);
  states.NoteLookup("ads", {0, 99});
  EXPECT_EQ(states.LookedUp("ads").generation, 8U) << "a server that names no state says nothing";
  EXPECT_EQ(states.LookedUp("users").step, 1U);
}

TEST(TableStates, AreForgottenWithTheirTables) {
  TableStates states;
  for (const char* table : {"ads", "users"}) {
    states.Acknowledge(table, {7, 5});
    states.NoteLookup(table, {7, 5});
  }
  states.Forget("ads");
  states.Forget("nothing");
  EXPECT_TRUE(states.Check("ads", states.Acknowledged("ads"), {8, 0}).ok());
  EXPECT_EQ(states.LookedUp("ads").generation, 0U);
  EXPECT_EQ(states.LookedUp("users").generation, 7U);
  states.ForgetAll();
  EXPECT_EQ(states.LookedUp("users").generation, 0U);
  EXPECT_EQ(states.Acknowledged("users").step, 0U);
}

TEST(OldestStates, HaveTheOldestOfEachTable) {
  OldestStates states;
  EXPECT_EQ(states.Of(3).generation, 0U);
  states.Meet(1, {7, 5});
  states.Meet(1, {7, 4});
  states.Meet(1, {7, 6});
  states.Meet(1, {0, 0});
  states.Meet(0, {9, 2});
  EXPECT_EQ(states.Of(1).step, 4U);
  EXPECT_EQ(states.Of(0).step, 2U);
  states.Meet(1, {8, 9});
  EXPECT_EQ(states.Of(1).step, 9U) << "the table was made anew";
}

}  // namespace
}  // namespace slotwise::client
