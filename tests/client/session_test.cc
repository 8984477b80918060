// Two pushes never share a step by accident, while trainers' shares of one step do so on purpose.
#include "slotwise/session.h"

#include <gtest/gtest.h>

namespace slotwise {
namespace {

TEST(Session, CountsFromOneUnderARandomId) {
  Session session;
  Session other;
  EXPECT_NE(session.id(), other.id());
  EXPECT_EQ(session.Next(), (Step{.session = session.id(), .number = 1}));
  EXPECT_EQ(session.Next().number, 2u);
}

TEST(Session, GivesSeveralTrainersOnePartEachUnlessTold) {
  Session two({.id = 5, .trainer = 1, .trainers = 2});
  EXPECT_EQ(two.Next(), (Step{.session = 5, .number = 1, .trainer = 1, .trainers = 2, .parts = 1}));
  Session cut({.id = 5, .trainer = 1, .trainers = 2, .parts = 3});
  EXPECT_EQ(cut.Next().parts, 3u);
}

TEST(Step, IsRefusedWithTheFieldsName) {
  EXPECT_TRUE(Validate(Step{}).ok());
  EXPECT_EQ(Validate(Step{.trainer = 2, .trainers = 2, .parts = 1}).message(),
            "step.trainer is 2: must be below step.trainers, which is 2");
  EXPECT_EQ(Validate(Step{.trainers = 2}).message(),
            "step.parts is 0: several trainers must agree on a number of parts");
  EXPECT_EQ(Validate(Step{.trainers = 2, .parts = 40000}).message(),
            "step.trainers x step.parts is 80000: a step has at most 65536 parts");
}

}  // namespace
}  // namespace slotwise
