// Batches are cut to what the server takes in a message and in a round; what cannot be cut is refused by the
// limit's name.
#include "client/cpp/batches.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace slotwise::client {
namespace {

constexpr std::uint32_t kDim = 4;

class BatchesTest : public testing::Test {
 protected:
  // A batch of `samples` samples of `slots` bags of one key, of a table of kDim elements a row.
  Batches Of(std::uint64_t samples, std::uint32_t slots, bool pushes = false) {
    keys_.resize(samples * slots);
    const BatchView view{keys_, {}, {}};
    return {.tables = {{.table = "ads",
                        .view = view,
                        .out = {},
                        .gradients = {},
                        .checked = {view, samples, slots, slots * kDim},
                        .before = {}}},
            .pushes = pushes,
            .shares = {}};
  }

  static CutOptions Within(std::uint64_t message, std::uint64_t round, std::uint64_t parts = 0) {
    ServerLimits limits;
    limits.message = message;
    limits.round = round;
    return {.parts = parts, .limits = limits};
  }

  std::vector<Key> keys_;
};

// A sample of one slot takes 8 + 4 + 4 · kDim = 28 bytes in a round, which has 4 more.
TEST_F(BatchesTest, AShareMayBeAsLargeAsARound) {
  Batches batches = Of(100, 1);
  ASSERT_TRUE(Cut(batches, Within(1 << 20, 100 * 28 + 4)).ok());
  EXPECT_EQ(batches.shares.size(), 1u);
  ASSERT_TRUE(Cut(batches, Within(1 << 20, 100 * 28 + 3)).ok());
  EXPECT_EQ(batches.shares, (std::vector<Share>{{{0, 50}}, {{50, 100}}}));
}

TEST_F(BatchesTest, ASampleThatDoesNotFitIsRefusedByTheLimitsName) {
  Batches batches = Of(3, 2);
  EXPECT_TRUE(Cut(batches, Within(1 << 20, 60)).ok());
  batches.shares.clear();
  const Status round = Cut(batches, Within(1 << 20, 59));
  EXPECT_EQ(round.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(round.message(), "sample 0 takes 60 bytes in a round, more than the 59 of limits.max_round_mib");
  const Status message = Cut(batches, Within(15, 1 << 20));
  EXPECT_EQ(message.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(message.message(),
            "sample 0 takes 16 bytes in a request, more than the 15 of limits.max_message_mib");
  EXPECT_TRUE(batches.shares.empty());
}

TEST_F(BatchesTest, AStepHasToFitIntoARoundWithAllItsParts) {
  Batches batches = Of(100, 1, true);
  EXPECT_TRUE(Cut(batches, Within(1 << 20, 100 * 28 + 4)).ok());
  EXPECT_TRUE(Cut(batches, Within(1 << 20, 100 * 28 + 4 * 4, 4)).ok());
  const Status refused = Cut(batches, Within(1 << 20, 100 * 28 + 4 * 4 - 1, 4));
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.message().find("the step of table ads takes 2816 bytes in a round, more than the 2815 of "
                                   "limits.max_round_mib; a step is applied whole"),
            0u)
      << refused.message();
}

// A bag of many keys gathers few bytes, but the server may keep a partial sum for each 11 of them.
TEST_F(BatchesTest, TheRoomForPartialSumsOfAStepCountsToo) {
  constexpr std::uint32_t kWide = 4096;
  keys_.resize(1100);
  const std::vector<std::uint32_t> offsets{0, 1100};
  const BatchView view{keys_, offsets, {}};
  Batches batches{.tables = {{.table = "ads",
                              .view = view,
                              .out = {},
                              .gradients = {},
                              .checked = {view, 1, 1, kWide},
                              .before = {}}},
                  .pushes = true,
                  .shares = {}};
  EXPECT_TRUE(Cut(batches, Within(1 << 20, 100 * kWide * 4)).ok());
  const Status refused = Cut(batches, Within(1 << 20, 100 * kWide * 4 - 1));
  EXPECT_EQ(
      refused.message().find("the step of table ads takes 1638400 bytes in a round, more than the 1638399 of "
                             "limits.max_round_mib; a step is applied whole"),
      0u)
      << refused.message();
  batches.pushes = false;
  EXPECT_TRUE(Cut(batches, Within(1 << 20, 1100 * 8 + 8 + kWide * 4)).ok());
}

TEST_F(BatchesTest, TheTablesOfAStepHaveToFitIntoARoundTogether) {
  Batches batches = Of(100, 1, true);
  batches.tables.push_back(batches.tables.front());
  batches.many = true;
  EXPECT_TRUE(Cut(batches, Within(1 << 20, 2 * (100 * 28 + 4))).ok());
  const Status refused = Cut(batches, Within(1 << 20, 2 * (100 * 28 + 4) - 1));
  EXPECT_EQ(refused.message().find("the step of 2 tables takes 5608 bytes in a round, more than the 5607 of "
                                   "limits.max_round_mib; a step is applied whole"),
            0u)
      << refused.message();
}

TEST_F(BatchesTest, APartThatTrainersAgreedOnIsNotCut) {
  Batches batches = Of(100, 1, true);
  const Status refused = Cut(batches, Within(1000, 1 << 20, 2));
  EXPECT_EQ(refused.message(),
            "the part of samples 0 to 49 takes 1200 bytes in a request, more than the 1000 of "
            "limits.max_message_mib");
}

TEST_F(BatchesTest, ARefusalTellsHowManySamplesWereAnswered) {
  Batches batches = Of(100, 1);
  AnsweredParts answered;
  const Status full = ResourceExhausted("full");
  EXPECT_EQ(WithAnsweredParts(full, batches, answered).message(), "full") << "nothing was sent";
  batches.shares = {{{0, 100}}};
  EXPECT_EQ(WithAnsweredParts(full, batches, answered).message(), "full") << "a request is refused whole";
  batches.shares = {{{0, 40}}, {{40, 70}}, {{70, 100}}};
  answered.Add(batches.shares[1]);
  EXPECT_EQ(WithAnsweredParts(full, batches, answered).message(),
            "full; the client had cut the lookup into 3 parts, of which 1 (30 of 100 samples) were answered: "
            "their keys have rows, which hold first values, and so may keys of other parts");
  EXPECT_EQ(WithAnsweredParts(full, batches, answered).code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace slotwise::client
