// Invalid batches and steps are refused with the offending place and value.
#include "slotwise/batch.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace slotwise {
namespace {

using ::testing::HasSubstr;
using Offsets = std::vector<std::uint32_t>;

Status ValidateBatch(std::size_t keys, const Offsets& offsets, std::uint32_t samples, std::uint32_t slots) {
  const std::vector<Key> some(keys);
  return Validate(BatchView{some, offsets}, samples, slots);
}

void ExpectRefused(const Status& status, const std::vector<std::string>& words) {
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  for (const std::string& word : words) {
    EXPECT_THAT(status.message(), HasSubstr(word));
  }
}

TEST(Batch, OfRisingOffsetsIsLegal) {
  EXPECT_TRUE(ValidateBatch(3, {0, 1, 3}, 2, 1).ok());
  EXPECT_TRUE(ValidateBatch(3, {0, 1, 3}, 1, 2).ok());
  EXPECT_TRUE(ValidateBatch(3, {0, 0, 3, 3, 3}, 2, 2).ok()) << "with empty bags";
  EXPECT_TRUE(ValidateBatch(0, {0, 0}, 1, 1).ok()) << "with nothing but an empty bag";
  EXPECT_TRUE(ValidateBatch(0, {0}, 0, 26).ok()) << "without samples";
}

TEST(Batch, OfAnotherNumberOfOffsetsIsRefusedWithBothNumbers) {
  ExpectRefused(ValidateBatch(3, {0, 1, 3}, 3, 1), {"offsets", "3", "4"});
  ExpectRefused(ValidateBatch(3, {0, 1, 3}, 2, 26), {"offsets", "3", "53", "26 slots"});
  ExpectRefused(ValidateBatch(3, {0, 1, 2, 3}, 0, 1), {"offsets", "4", "1"});
  ExpectRefused(ValidateBatch(0, {}, 0, 1), {"offsets", "0", "1"});
  ExpectRefused(ValidateBatch(0, {}, 1, 1), {"offsets", "0", "2"});
}

TEST(Batch, WhoseFirstOffsetIsNotZeroIsRefused) {
  ExpectRefused(ValidateBatch(3, {1, 2, 3}, 2, 1), {"offsets[0]", "1", "must be 0"});
  ExpectRefused(ValidateBatch(7, {7}, 0, 1), {"offsets[0]", "7"});
}

TEST(Batch, WhoseOffsetsFallIsRefusedWithThePlace) {
  ExpectRefused(ValidateBatch(9, {0, 5, 4, 9}, 3, 1), {"offsets[2]", "4", "offsets[1]", "5"});
  ExpectRefused(ValidateBatch(2, {0, 4'294'967'295, 2}, 2, 1), {"offsets[2]", "2", "4294967295"});
}

TEST(Batch, WhoseLastOffsetIsNotTheNumberOfKeysIsRefused) {
  ExpectRefused(ValidateBatch(4, {0, 1, 3}, 2, 1), {"offsets[2]", "3", "4"});
  ExpectRefused(ValidateBatch(2, {0, 1, 3}, 2, 1), {"offsets[2]", "3", "2"});
  ExpectRefused(ValidateBatch(1, {0}, 0, 1), {"offsets[0]", "0", "1"});
}

TEST(Batch, OfMoreBagsThan32BitsCountIsRefusedAndDoesNotWrapAround) {
  // 65536 · 65536 is 2^32, which is 0 in 32 bits.
  ExpectRefused(ValidateBatch(0, {0}, 65536, 65536), {"samples", "65536", "4294967296"});
  ExpectRefused(ValidateBatch(0, {0}, 0xFFFF'FFFF, 0xFFFF'FFFF), {"samples", "4294967295"});
}

TEST(Step, OfOneOrManyPartsIsLegal) {
  EXPECT_TRUE(Validate(StepId{}).ok());
  EXPECT_TRUE(Validate(StepId{.session = 1, .number = 2, .part = 65535, .parts = 65536}).ok());
}

TEST(Step, OfNoPartsOrTooManyIsRefused) {
  ExpectRefused(Validate(StepId{.parts = 0}), {"step.parts", "0", "65536"});
  ExpectRefused(Validate(StepId{.parts = 65537}), {"step.parts", "65537", "65536"});
}

TEST(Step, WhosePartIsNotAmongItsPartsIsRefused) {
  ExpectRefused(Validate(StepId{.part = 1, .parts = 1}), {"step.part", "is 1", "step.parts"});
  ExpectRefused(Validate(StepId{.part = 4'294'967'295, .parts = 8}), {"step.part", "4294967295", "8"});
}

}  // namespace
}  // namespace slotwise
