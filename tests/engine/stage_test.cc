// A stage ends a round when the device has finished it, and not before. The test's device works as late as it
// may.
#include "server/engine/stage.h"

#include <gtest/gtest.h>

#include <vector>

#include "server/engine/operations/push.h"
#include "tests/support/apart_device.h"

namespace slotwise::test {
namespace {

class StagesTest : public testing::Test {
 protected:
  Request PushOf(std::size_t keys) {
    PushRequest request;
    request.batch.keys = BatchArray<Key>(keys);
    request.batch.reservation = *budget_.Reserve(request.batch.bytes());
    return request;
  }

  const std::unique_ptr<Collective> collective_ = MakeSoloCollective();
  const std::unique_ptr<Device> device_ = MakeApartDevice();
  const Exchanges exchanges_ = Exchanges::MakeSolo(*device_);
  Budget budget_{1000};
  PendingRequests tickets_;
  Stages stages_{*device_, *collective_, exchanges_, tickets_};
  std::vector<int> answered_;
};

TEST_F(StagesTest, ADeviceOfItsOwnMemoryHasTwo) {
  EXPECT_TRUE(stages_.overlap());
  Stage& first = stages_.Next();
  Stage& second = stages_.Next();
  EXPECT_NE(&first, &second);
  EXPECT_EQ(&stages_.Next(), &first);
}

TEST_F(StagesTest, ACpuHasOne) {
  const auto cpu = MakeCpuDevice(1);
  const Exchanges exchanges = Exchanges::MakeSolo(*cpu);
  EXPECT_FALSE(Stages(*cpu, *collective_, exchanges, tickets_).overlap());
}

TEST_F(StagesTest, AnswersWhenTheDeviceIsDone) {
  int from = 7;
  int to = 0;
  Stage& stage = stages_.Next();
  stage.stream().Copy(&to, &from, sizeof(to));
  stage.AnswerLater([&] { answered_.push_back(to); });
  stages_.FinishDone();
  EXPECT_TRUE(answered_.empty());
  stages_.FinishAll();
  EXPECT_EQ(answered_, std::vector<int>{7});
  stages_.FinishAll();
  EXPECT_EQ(answered_.size(), 1U) << "once";
}

TEST_F(StagesTest, APushCanBeAnsweredLaterToo) {
  std::uint64_t step = 0;
  Stage& stage = stages_.Next();
  Request request = PushOf(10);
  request.As<PushRequest>().done = [&](const Result<AppliedStep>& answer) { step = answer->table_step; };
  stage.AnswerLater([done = request.As<PushRequest>().done] { done(AppliedStep{41, {}}); });
  stage.Keep(std::move(request));
  EXPECT_EQ(step, 0U);
  stages_.FinishAll();
  EXPECT_EQ(step, 41U);
}

TEST_F(StagesTest, KeepsARequestsArraysUntilTheDeviceIsDone) {
  stages_.Next().Keep(PushOf(10));
  EXPECT_EQ(budget_.used(), 80U);
  stages_.Next().Keep(PushOf(20));
  EXPECT_EQ(budget_.used(), 240U);
  stages_.FinishOldest();
  EXPECT_EQ(budget_.used(), 160U) << "the older round's";
  stages_.FinishAll();
  EXPECT_EQ(budget_.used(), 0U);
}

TEST_F(StagesTest, GivesRoomBackAsSoonAsTheDeviceIsDone) {
  int from = 7;
  int to = 0;
  Stage& stage = stages_.Next();
  stage.stream().Copy(&to, &from, sizeof(to));
  stage.Keep(PushOf(10));
  stages_.FinishDone();
  EXPECT_EQ(budget_.used(), 80U) << "the device may still read the arrays";
  device_->Wait();
  stages_.FinishDone();
  EXPECT_EQ(budget_.used(), 0U) << "though no answer waited";
}

TEST_F(StagesTest, GivesRoomBackBeforeItAnswers) {
  Stage& stage = stages_.Next();
  stage.Keep(PushOf(10));
  bool answered = false;
  stage.AnswerLater([&] {
    EXPECT_EQ(budget_.used(), 0U);
    answered = true;
  });
  stages_.FinishAll();
  EXPECT_TRUE(answered);
}

TEST_F(StagesTest, AClosedStageIsDoneWhenTheDevicesWorkIs) {
  int from = 7;
  int to = 0;
  Stage& stage = stages_.Next();
  device_->WorkStream().Copy(&to, &from, sizeof(to));
  stage.Close(device_->WorkStream());
  EXPECT_FALSE(stage.stream().IsDone());
  EXPECT_EQ(to, 0);
  stage.Finish();
  EXPECT_EQ(to, 7) << "the push's update is part of its round";
}

TEST_F(StagesTest, EndsTheOldestRoundFirst) {
  for (int round = 1; round <= 5; ++round) {
    stages_.Next().AnswerLater([this, round] { answered_.push_back(round); });
    EXPECT_EQ(answered_.size(), round < 3 ? 0U : static_cast<std::size_t>(round) - 2);
  }
  stages_.FinishAll();
  EXPECT_EQ(answered_, (std::vector<int>{1, 2, 3, 4, 5}));
}

}  // namespace
}  // namespace slotwise::test
