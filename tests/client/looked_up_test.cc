// What a client's lookups have read.
#include "client/cpp/looked_up.h"

#include <gtest/gtest.h>

namespace slotwise::client {
namespace {

TEST(LookedUpStates, HaveTheLatestOfEachTable) {
  LookedUpStates states;
  EXPECT_EQ(states.Of("ads").lineage, 0U);
  states.Note("ads", {7, 5});
  states.Note("users", {9, 1});
  states.Note("ads", {7, 3});
  EXPECT_EQ(states.Of("ads").step, 3U) << "an earlier state may be read later";
  states.Note("ads", {8, 0});
  EXPECT_EQ(states.Of("ads").lineage, 8U);
  states.Note("ads", {0, 99});
  EXPECT_EQ(states.Of("ads").lineage, 8U) << "a server that names no state says nothing";
  EXPECT_EQ(states.Of("users").step, 1U);
}

TEST(LookedUpStates, AreForgottenWithTheirTables) {
  LookedUpStates states;
  states.Note("ads", {7, 5});
  states.Note("users", {9, 1});
  states.Forget("ads");
  states.Forget("nothing");
  EXPECT_EQ(states.Of("ads").lineage, 0U);
  EXPECT_EQ(states.Of("users").lineage, 9U);
  states.ForgetAll();
  EXPECT_EQ(states.Of("users").lineage, 0U);
}

TEST(OldestStates, HaveTheOldestOfEachTable) {
  OldestStates states;
  EXPECT_EQ(states.Of(3).lineage, 0U);
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
