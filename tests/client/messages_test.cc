// Requests equal what protobuf would write; replies are read into arrays, or refused.
#include "client/cpp/messages.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <optional>
#include <vector>

#include "client/cpp/batch_exchange.h"
#include "slotwise/v1/embedding.pb.h"
#include "tests/rpc/messages.h"

namespace slotwise::client {
namespace {

const std::vector<Key> kKeys{Key{5}, Key{~std::uint64_t{0}}, Key{5}, Key{0}};
const std::vector<std::uint32_t> kOffsets{0, 1, 1, 3, 4};
const std::vector<float> kWeights{1, 2, 3, 4};

TableOptions Shape(std::uint32_t slots, std::uint32_t dim, Combiner combiner = Combiner::kSum) {
  TableOptions table;
  table.slots = slots;
  table.dim = dim;
  table.combiner = combiner;
  return table;
}

std::shared_ptr<MessageMemory> Memory() { return std::make_shared<MessageMemory>(); }

TableBatch Checked(const BatchView& batch) {
  auto checked = CheckBatch(batch, Shape(2, 3));
  EXPECT_TRUE(checked.ok()) << checked.status().message();
  return {.table = "ads", .view = batch, .checked = *checked};
}

template <class Message>
Message Parsed(const grpc::ByteBuffer& bytes) {
  Message message;
  EXPECT_TRUE(message.ParseFromString(StringOf(bytes)));
  return message;
}

// What a push of one sample, with gradients 1 to 6, says beside its batch.
v1::PushRequest PushOf(DataType type, const TableState& looked_up = {}, const TableState& acknowledged = {},
                       std::optional<float> rate = {}) {
  const std::vector<float> gradients{1, 2, 3, 4, 5, 6};
  TableBatch batch = Checked({std::span(kKeys).first(2), {}});
  batch.gradients = gradients;
  batch.before = acknowledged;
  batch.looked_up = looked_up;
  batch.learning_rate = rate;
  return Parsed<v1::PushRequest>(PushMessage(batch, {0, 1}, {}, type, *Memory()));
}

v1::LookupReply ReplyOf(std::uint32_t samples, std::uint32_t width, const std::string& values) {
  v1::LookupReply reply;
  reply.set_samples(samples);
  reply.set_width(width);
  reply.set_values(values);
  return reply;
}

TEST(LookupMessage, HoldsAPartOfTheBatchWithOffsetsFromZero) {
  const auto batch = Checked({kKeys, kOffsets, kWeights});
  EXPECT_EQ(batch.checked.samples, 2u);
  const auto part = Parsed<v1::LookupRequest>(
      LookupMessage(batch, {1, 2}, LookupMode::kEval, DataType::kFloat32, *Memory()));
  EXPECT_EQ(part.table(), "ads");
  EXPECT_EQ(part.mode(), v1::LOOKUP_MODE_EVAL);
  EXPECT_EQ(part.samples(), 1u);
  EXPECT_EQ(part.keys(), BytesOf<std::uint64_t>({~std::uint64_t{0}, 5, 0}));
  EXPECT_EQ(part.offsets(), BytesOf<std::uint32_t>({0, 2, 3}));
  EXPECT_EQ(part.weights(), BytesOf<float>({2, 3, 4}));
}

TEST(LookupMessage, LeavesOffsetsOutWhereThereAreNone) {
  const auto part = Parsed<v1::LookupRequest>(
      LookupMessage(Checked({kKeys, {}}), {1, 2}, LookupMode::kTrain, DataType::kBFloat16, *Memory()));
  EXPECT_EQ(part.mode(), v1::LOOKUP_MODE_TRAIN);
  EXPECT_EQ(part.data_type(), v1::DATA_TYPE_BFLOAT16);
  EXPECT_EQ(part.keys(), BytesOf<std::uint64_t>({5, 0}));
  EXPECT_TRUE(part.offsets().empty());
  EXPECT_TRUE(part.weights().empty());
}

TEST(PushMessage, NamesItsPartAndCarriesItsGradients) {
  std::vector<float> gradients(12);
  for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i] = static_cast<float>(i);
  const StepId step{.session = 9, .number = 8, .part = 3, .parts = 4};
  TableBatch batch = Checked({kKeys, kOffsets});
  batch.gradients = gradients;
  const auto part = Parsed<v1::PushRequest>(PushMessage(batch, {1, 2}, step, DataType::kFloat32, *Memory()));
  EXPECT_EQ(part.step().session(), 9u);
  EXPECT_EQ(part.step().number(), 8u);
  EXPECT_EQ(part.step().part(), 3u);
  EXPECT_EQ(part.step().parts(), 4u);
  EXPECT_EQ(part.gradients(), BytesOf<float>({6, 7, 8, 9, 10, 11}));
}

TEST(PushMessage, SaysWhatTheRowsWereReadOfIfItIsKnown) {
  EXPECT_EQ(PushOf(DataType::kFloat32, {7, 5}).looked_up().lineage(), 7u);
  EXPECT_EQ(PushOf(DataType::kFloat32, {7, 5}).looked_up().table_step(), 5u);
  EXPECT_FALSE(PushOf(DataType::kFloat32, {}).has_looked_up());
  EXPECT_FALSE(PushOf(DataType::kFloat32, {0, 5}).has_looked_up());
}

TEST(PushMessage, BringsTheRateOfItsStepIfItHasOne) {
  EXPECT_FALSE(PushOf(DataType::kFloat32).has_learning_rate());
  EXPECT_TRUE(PushOf(DataType::kFloat32, {}, {}, 0.0F).has_learning_rate());
  EXPECT_EQ(PushOf(DataType::kFloat32, {}, {}, 0.25F).learning_rate(), 0.25F);
}

TEST(PushMessage, NarrowsGradients) {
  const v1::PushRequest push = PushOf(DataType::kFloat16);
  EXPECT_EQ(push.data_type(), v1::DATA_TYPE_FLOAT16);
  EXPECT_EQ(push.gradients(), BytesOf<std::uint16_t>({0x3C00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600}));
}

TEST(Requests, SayWhatWasAcknowledgedIfItIsKnownByWhichStart) {
  const auto lookup = [](const TableState& state) {
    TableBatch batch = Checked({std::span(kKeys).first(2), {}});
    batch.before = state;
    return Parsed<v1::LookupRequest>(
        LookupMessage(batch, {0, 1}, LookupMode::kTrain, DataType::kFloat32, *Memory()));
  };
  const auto push = [](const TableState& state) { return PushOf(DataType::kFloat32, {}, state); };
  const auto expect = [](const auto& request) {
    EXPECT_EQ(request.acknowledged().incarnation(), 9u);
    EXPECT_EQ(request.acknowledged().table_step(), 5u);
  };
  expect(lookup({7, 5, 9}));
  expect(push({7, 5, 9}));
  expect(DescribeRequest("ads", {7, 5, 9}));
  EXPECT_EQ(DescribeRequest("ads", {}).table(), "ads");
  for (const TableState& unknown : {TableState{7, 5, 0}, TableState{7, 0, 9}}) {
    EXPECT_FALSE(lookup(unknown).has_acknowledged());
    EXPECT_FALSE(push(unknown).has_acknowledged());
    EXPECT_FALSE(DescribeRequest("ads", unknown).has_acknowledged());
  }
}

TEST(MessageMemory, IsUsedAgainOnceItsSliceIsGone) {
  const auto memory = Memory();
  constexpr std::size_t kSize = 3 << 20;
  const std::byte* first = nullptr;
  {
    const auto [slice, bytes] = memory->Take(kSize);
    EXPECT_EQ(slice.size(), kSize);
    EXPECT_EQ(reinterpret_cast<const std::byte*>(slice.begin()), bytes);
    const auto [other, others_bytes] = memory->Take(kSize);
    EXPECT_NE(bytes, others_bytes);
    first = others_bytes;  // goes first
    EXPECT_EQ(memory->kept(), 0u);
  }
  EXPECT_EQ(memory->kept(), 2 * kSize);
  {
    const auto [smaller, bytes] = memory->Take(kSize - 1000);
    EXPECT_TRUE(bytes == first || memory->kept() == kSize);
    EXPECT_EQ(smaller.size(), kSize - 1000);
    EXPECT_EQ(memory->kept(), kSize);
    const auto [much_smaller, own] = memory->Take(kSize / 3);
    EXPECT_EQ(memory->kept(), kSize);  // a third of a block would waste the rest
    const auto [small, malloced] = memory->Take(100);
    EXPECT_EQ(small.size(), 100u);
  }
  EXPECT_EQ(memory->kept(), 2 * kSize + (1 << 20));
}

TEST(MessageMemory, KeepsNoMoreThanItMay) {
  const auto memory = Memory();
  std::vector<grpc::Slice> slices;
  for (int i = 0; i < 20; ++i) slices.push_back(memory->Take(4 << 20).first);
  slices.clear();
  EXPECT_EQ(memory->kept(), MessageMemory::kMostKept);
}

TEST(MessageMemory, MayGoBeforeItsSlices) {
  auto memory = Memory();
  std::optional<grpc::Slice> slice = memory->Take(1 << 20).first;
  const std::weak_ptr<MessageMemory> watch = memory;
  memory.reset();
  EXPECT_FALSE(watch.expired());
  slice.reset();
  EXPECT_TRUE(watch.expired());
}

TEST(ReadLookupReply, WidensHalvesAndRefusesATypeThatWasNotAskedFor) {
  v1::LookupReply reply = ReplyOf(1, 2, BytesOf<std::uint16_t>({0x3C00, 0xC000}));
  reply.set_data_type(v1::DATA_TYPE_FLOAT16);
  std::vector<float> out(2);
  const auto bytes = BufferOf(reply.SerializeAsString());
  ASSERT_TRUE(ReadLookupReply(bytes, 1, 2, DataType::kFloat16, out).ok());
  EXPECT_EQ(out, (std::vector<float>{1, -2}));
  EXPECT_EQ(ReadLookupReply(bytes, 1, 2, DataType::kBFloat16, out).status().code(), StatusCode::kInternal);
}

// Pieces may end in the middle of a number. Of a field that comes twice, the last one counts.
TEST(ReadLookupReply, WidensHalvesThatComeInAnyPieces) {
  constexpr std::uint32_t kWidth = 1000;
  std::vector<std::uint16_t> halves(kWidth);
  // All of them finite, as either type.
  for (std::uint32_t i = 0; i < kWidth; ++i) halves[i] = static_cast<std::uint16_t>(1000 + 30 * i);
  v1::LookupReply reply = ReplyOf(1, kWidth, "seven b");
  std::string first = reply.SerializeAsString();
  reply.set_values(std::string(2 * kWidth, '\1'));
  first += reply.SerializeAsString();
  for (const DataType type : {DataType::kFloat16, DataType::kBFloat16}) {
    reply.set_data_type(type == DataType::kFloat16 ? v1::DATA_TYPE_FLOAT16 : v1::DATA_TYPE_BFLOAT16);
    reply.set_values(BytesOf(halves));
    std::vector<float> expected(kWidth);
    Widen(reinterpret_cast<const std::byte*>(halves.data()), type, expected);
    for (const std::size_t slice : {1U, 2U, 3U, 7U, 64U, 501U, 4096U}) {
      std::vector<float> out(kWidth);
      const auto bytes = BufferOf(first + reply.SerializeAsString(), slice);
      ASSERT_TRUE(ReadLookupReply(bytes, 1, kWidth, type, out).ok());
      EXPECT_EQ(out, expected) << ToString(type) << " in slices of " << slice;
    }
    // There is room for one number too few.
    std::vector<float> out(kWidth - 1);
    EXPECT_EQ(ReadLookupReply(BufferOf(reply.SerializeAsString()), 1, kWidth, type, out).status().code(),
              StatusCode::kFailedPrecondition);
  }
}

TEST(CheckBatch, RefusesWhatIsNoBatchByFieldAndValue) {
  const auto message = [](const BatchView& batch) {
    return CheckBatch(batch, Shape(2, 3)).status().message();
  };
  const std::vector<Key> three(3);
  EXPECT_EQ(message({three, {}}),
            "keys has 3 keys without offsets, which is no whole number of samples of 2 slots");
  EXPECT_EQ(message({three, std::vector<std::uint32_t>{0, 3}}),
            "offsets has 2 elements, which is no whole number of samples of 2 slots");
  EXPECT_EQ(message({kKeys, {}, std::vector<float>{1}}),
            "weights has 1 elements: must have none, or 4, one for each key");
  EXPECT_NE(message({kKeys, std::vector<std::uint32_t>{0, 3, 2}}), "");
  EXPECT_NE(message({kKeys, std::vector<std::uint32_t>{0, 3, 3}}), "");
  EXPECT_EQ(CheckBatch({}, Shape(2, 3))->samples, 0u);
  EXPECT_EQ(message({kKeys, {}, std::vector<float>{1, 2, INFINITY, NAN}}),
            "weights[2] is inf: must be finite");
  const std::vector<std::uint32_t> two_and_none{0, 2, 2, 3, 4};
  EXPECT_EQ(message({kKeys, two_and_none}), "");
  EXPECT_EQ(CheckBatch({kKeys, two_and_none}, Shape(1, 3, Combiner::kNone)).status().message(),
            "offsets[1] is 2: must be 1, because in a table without a combiner every bag has one key");
  EXPECT_TRUE(
      CheckBatch({kKeys, std::vector<std::uint32_t>{0, 1, 2, 3, 4}}, Shape(1, 3, Combiner::kNone)).ok());
}

TEST(ReadLookupReply, WritesValuesToTheirPlaceHoweverTheBytesAreCut) {
  const std::string bytes = ReplyOf(2, 3, BytesOf<float>({1, 2, 3, 4, 5, 6})).SerializeAsString();
  for (std::size_t slice = 1; slice < 40; ++slice) {
    std::vector<float> out(6);
    ASSERT_TRUE(ReadLookupReply(BufferOf(bytes, slice), 2, 3, DataType::kFloat32, out).ok());
    EXPECT_EQ(out, (std::vector<float>{1, 2, 3, 4, 5, 6}));
  }
}

TEST(ReadLookupReply, RefusesAnotherShapeAndWhatIsNoReply) {
  const std::string bytes = ReplyOf(2, 3, BytesOf<float>({1, 2, 3, 4, 5, 6})).SerializeAsString();
  const auto read = [](const std::string& reply, std::uint64_t samples, std::uint32_t width) {
    std::vector<float> out(samples * width);
    return ReadLookupReply(BufferOf(reply), samples, width, DataType::kFloat32, out).status();
  };
  EXPECT_EQ(read(bytes, 3, 2).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(read(bytes, 1, 3).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(read("", 2, 3).code(), StatusCode::kFailedPrecondition);
  for (std::size_t size = 1; size < bytes.size(); ++size)
    EXPECT_FALSE(read(bytes.substr(0, size), 2, 3).ok()) << size;
  const Status cut = read(bytes.substr(0, bytes.size() - 1), 2, 3);
  EXPECT_EQ(cut.code(), StatusCode::kInternal);
  EXPECT_NE(cut.message().find("the reply is not a valid slotwise.v1.LookupReply"), std::string::npos)
      << cut.message();
}

}  // namespace
}  // namespace slotwise::client
