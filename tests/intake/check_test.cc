#include "server/intake/check.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/rpc/messages.h"
#include "tests/support/status.h"

namespace slotwise {
namespace {

using google::protobuf::internal::WireFormatLite;

// Returns one length-delimited field as the wire has it, whose length prefix says `claimed`.
std::string Field(int number, std::string_view bytes, std::uint64_t claimed) {
  std::string wire;
  {
    google::protobuf::io::StringOutputStream stream(&wire);
    google::protobuf::io::CodedOutputStream out(&stream);
    out.WriteTag(WireFormatLite::MakeTag(number, WireFormatLite::WIRETYPE_LENGTH_DELIMITED));
    out.WriteVarint64(claimed);
  }
  return wire.append(bytes);
}

std::string Field(int number, std::string_view bytes) { return Field(number, bytes, bytes.size()); }

Result<CheckedLookup> Lookup(std::string_view bytes) { return DecodeLookup(BufferOf(bytes), FindAds); }
Result<PushRequest> Push(const v1::PushRequest& message) {
  return DecodePush(BufferOf(message.SerializeAsString()), FindAds);
}

void ExpectSmallBatch(const BatchPart& batch) {
  EXPECT_EQ(batch.samples, 2u);
  EXPECT_EQ(BytesOf(batch.keys.span()), SmallLookup().keys());
  EXPECT_EQ(BytesOf(batch.offsets.span()), SmallLookup().offsets());
}

void ExpectSmallLookup(const Result<CheckedLookup>& decoded) {
  ASSERT_TRUE(decoded.ok()) << decoded.status().message();
  EXPECT_EQ(decoded->request.table, TableId{7});
  EXPECT_EQ(decoded->request.mode, LookupMode::kEval);
  EXPECT_EQ(decoded->width, 6u);
  EXPECT_EQ(decoded->acknowledged, (Acknowledged{.instance = 9, .step = 5}));
  ExpectSmallBatch(decoded->request.batch);
}

TEST(DecodeLookup, ReadsWhatAGeneratedClientWrites) {
  ExpectSmallLookup(Lookup(SmallLookup().SerializeAsString()));
}

TEST(DecodeLookup, ReadsItHoweverGrpcSlicedIt) {
  const std::string bytes = SmallLookup().SerializeAsString();
  for (std::size_t slice = 1; slice <= bytes.size(); ++slice) {
    ExpectSmallLookup(DecodeLookup(BufferOf(bytes, slice), FindAds));
  }
}

TEST(DecodeLookup, TakesFieldsInAnyOrder) {
  v1::LookupRequest rest = SmallLookup();
  rest.clear_keys();
  rest.clear_offsets();
  ExpectSmallLookup(Lookup(Field(15, SmallLookup().offsets()) + Field(14, SmallLookup().keys()) +
                           rest.SerializeAsString()));
}

TEST(DecodeLookup, LetsTheLastOfARepeatedFieldCount) {
  const std::string first =
      Field(14, "not even whole keys") + Field(15, std::string(400, 'x')) + Field(1, "other");
  ExpectSmallLookup(Lookup(first + SmallLookup().SerializeAsString()));
}

TEST(DecodeLookup, IgnoresUnknownFieldsAndWrongWireTypes) {
  std::string bytes = Field(1000, "from the future") + SmallLookup().SerializeAsString();
  bytes += std::string{"\x70\x05", 2};              // field 14 as a varint
  bytes += std::string{"\x7d\x01\x02\x03\x04", 5};  // field 15 as a fixed32
  bytes += std::string{"\xa3\x06\xa4\x06", 4};      // an empty group, field 100
  ExpectSmallLookup(Lookup(bytes));
}

TEST(DecodeLookup, RefusesEveryTruncation) {
  v1::LookupRequest whole = SmallLookup();
  // The keys are not one a bag, so the offsets cannot be left out.
  whole.set_keys(BytesOf<std::uint64_t>({1, 2, 3, 4, 5}));
  whole.set_offsets(BytesOf<std::uint32_t>({0, 1, 1, 3, 5}));
  const std::string bytes = whole.SerializeAsString();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const std::string cut = bytes.substr(0, size);
    const auto decoded = Lookup(cut);
    // A message that is cut between two fields is still a message, but of another batch: an empty one before
    // `samples`.
    v1::LookupRequest plain;
    const bool message = plain.ParseFromString(cut);
    if (message && plain.table() == "ads" && plain.samples() == 0) continue;
    ASSERT_FALSE(decoded.ok()) << size;
    if (message && plain.table() != "ads") {
      EXPECT_EQ(decoded.status().code(), StatusCode::kNotFound) << size;
    } else {
      EXPECT_EQ(decoded.status().code(), StatusCode::kInvalidArgument) << size;
    }
    EXPECT_EQ(decoded.status().message().find("cut short") != std::string::npos, !message) << size;
  }
}

TEST(DecodeLookup, RefusesALengthPastTheEndWithoutAllocatingForIt) {
  for (const int number : {1, 14, 15, 1000}) {
    for (const std::uint64_t claimed :
         {std::uint64_t{9}, std::uint64_t{1} << 30, std::uint64_t{0x7fff'ffff}, std::uint64_t{0x8000'0000},
          std::uint64_t{0xffff'ffff}, std::numeric_limits<std::uint64_t>::max()}) {
      const auto decoded = Lookup(Field(number, "12345678", claimed));
      ASSERT_FALSE(decoded.ok());
      EXPECT_EQ(decoded.status().code(), StatusCode::kInvalidArgument) << number << " " << claimed;
      EXPECT_NE(decoded.status().message().find("slotwise.v1.LookupRequest"), std::string::npos);
    }
  }
}

TEST(DecodeLookup, GivesEveryBagOneKeyIfOffsetsAreLeftOut) {
  v1::LookupRequest message = SmallLookup();
  message.clear_offsets();
  const auto decoded = test::Must(Lookup(message.SerializeAsString()));
  const auto offsets = decoded.request.batch.offsets.span();
  EXPECT_EQ(std::vector<std::uint32_t>(offsets.begin(), offsets.end()),
            (std::vector<std::uint32_t>{0, 1, 2, 3, 4}));
}

TEST(DecodeLookup, TakesZeroSamplesWithAndWithoutOffsets) {
  v1::LookupRequest message;
  message.set_table("ads");
  for (const std::string& offsets : {std::string(), BytesOf<std::uint32_t>({0})}) {
    message.set_offsets(offsets);
    const auto decoded = test::Must(Lookup(message.SerializeAsString()));
    EXPECT_EQ(decoded.request.mode, LookupMode::kTrain);
    EXPECT_EQ(decoded.request.batch.offsets.size(), 1u);
    EXPECT_EQ(decoded.request.batch.keys.size(), 0u);
  }
}

TEST(DecodeLookup, RefusesAReplyThatNoMessageHolds) {
  const auto find_wide = [](std::string_view, Rights) -> Result<TableInfo> {
    TableInfo wide{TableId{1}, AdsTable()};
    wide.options.slots = 4096;
    wide.options.dim = 4096;
    return wide;
  };
  v1::LookupRequest message;
  message.set_table("wide");
  message.set_samples(32);  // 32 · 4096 · 4096 · 4 bytes = 2 GiB
  message.set_offsets(BytesOf(std::vector<std::uint32_t>(32 * 4096 + 1)));
  test::ExpectStatus(DecodeLookup(BufferOf(message.SerializeAsString()), find_wide).status(),
                     StatusCode::kResourceExhausted, "samples is 32");
}

TEST(DecodePush, ReadsWhatAGeneratedClientWrites) {
  const auto decoded = test::Must(Push(SmallPush()));
  EXPECT_EQ(decoded.table, TableId{7});
  EXPECT_EQ(decoded.step, (StepId{.session = 0x1234'5678'9abc'def0u, .number = 41, .part = 1, .parts = 3}));
  ExpectSmallBatch(decoded.batch);
  EXPECT_EQ(BytesOf(decoded.batch.values.span().first(12)), SmallPush().gradients());
}

// The server counts by it, and nothing else: the same part of a step may come with another one.
TEST(DecodePush, WhatTheRowsWereReadOfIsNoPartOfTheBody) {
  v1::PushRequest message = SmallPush();
  const auto plain = test::Must(Push(message));
  EXPECT_EQ(plain.looked_up, TableVersion());
  for (const std::uint64_t number : {std::uint64_t{0}, std::uint64_t{5}, ~std::uint64_t{0}}) {
    message.mutable_looked_up()->set_lineage(~number);
    message.mutable_looked_up()->set_table_step(number);
    const auto push = test::Must(Push(message));
    EXPECT_EQ(push.looked_up, (TableVersion{.generation = ~number, .step = number}));
    EXPECT_EQ(push.body, plain.body);
  }
}

// The same part may come again with another state, and a client may say what it likes.
TEST(DecodePush, WhatWasAcknowledgedIsNoPartOfTheBody) {
  v1::PushRequest message = SmallPush();
  const auto plain = test::Must(Push(message));
  EXPECT_EQ(plain.acknowledged, Acknowledged());
  message.mutable_acknowledged()->set_incarnation(~std::uint64_t{0});
  message.mutable_acknowledged()->set_table_step(~std::uint64_t{1});
  const auto push = test::Must(Push(message));
  EXPECT_EQ(push.acknowledged, (Acknowledged{.instance = ~std::uint64_t{0}, .step = ~std::uint64_t{1}}));
  EXPECT_EQ(push.body, plain.body);
}

TEST(DecodePush, ARateOfItsOwnIsPartOfTheBody) {
  v1::PushRequest message = SmallPush();
  EXPECT_EQ(Push(message)->learning_rate, std::nullopt);
  std::set<std::uint32_t> bodies{Push(message)->body};
  for (const float rate : {0.0F, 0.5F, 1e-30F}) {
    message.set_learning_rate(rate);
    const auto push = test::Must(Push(message));
    EXPECT_EQ(push.learning_rate, std::optional(rate));
    EXPECT_TRUE(bodies.insert(push.body).second) << rate;
  }
}

TEST(DecodePush, RefusesARateAtWhichTheTableCannotLearn) {
  TableOptions options = AdsTable();
  const auto refusal = [&options](float rate) {
    v1::PushRequest message = SmallPush();
    message.set_learning_rate(rate);
    const auto push = DecodePush(BufferOf(message.SerializeAsString()), [&](std::string_view, Rights) {
      return Result<TableInfo>({TableId{7}, options});
    });
    EXPECT_TRUE(push.ok() || push.status().code() == StatusCode::kInvalidArgument);
    return push.status().message();
  };
  for (const float rate : {-0.5F, std::nanf(""), std::numeric_limits<float>::infinity()})
    EXPECT_NE(refusal(rate).find("learning_rate is"), std::string::npos) << rate;
  options.optimizer.kind = OptimizerKind::kFtrl;
  EXPECT_EQ(refusal(0.5F), "");
  EXPECT_NE(refusal(0).find("above 0"), std::string::npos);
  for (const ScheduleOptions& schedule :
       {ScheduleOptions{.warmup_steps = 1}, ScheduleOptions{.decay_steps = 1}}) {
    options.optimizer.schedule = schedule;
    EXPECT_NE(refusal(0.5F).find("table ads, whose schedule decides it"), std::string::npos);
  }
}

TEST(DecodePush, SamplesGradientsFromALineThatMovesWithTheStep) {
  v1::PushRequest message = SmallPush();  // 12 gradients, which are less than a line
  const auto decoded = test::Must(Push(message));
  EXPECT_EQ(decoded.gradients, SquareSum()) << "step 41, part 1: the sample begins at line 42 % 17";
  message.mutable_step()->set_number(33);
  const auto sampled = test::Must(Push(message));
  SquareSum expected{.numbers = 12};
  for (const float value : decoded.batch.values.span()) expected.squares += double{value} * double{value};
  EXPECT_EQ(sampled.gradients.numbers, expected.numbers);
  EXPECT_DOUBLE_EQ(sampled.gradients.squares, expected.squares);
}

TEST(DecodePush, MergesARepeatedStep) {
  v1::PushRequest more;
  more.mutable_step()->set_part(2);
  EXPECT_EQ(
      test::Must(DecodePush(BufferOf(SmallPush().SerializeAsString() + more.SerializeAsString()), FindAds))
          .step,
      (StepId{.session = 0x1234'5678'9abc'def0u, .number = 41, .part = 2, .parts = 3}));
}

TEST(DecodePush, TakesPartsLeftOutAsOne) {
  v1::PushRequest message = SmallPush();
  message.mutable_step()->clear_part();
  message.mutable_step()->clear_parts();
  EXPECT_EQ(test::Must(Push(message)).step.parts, 1u);
}

struct Refusal {
  const char* what;
  std::function<void(v1::PushRequest&)> spoil;
  StatusCode code;
  const char* words;
};

std::string Floats(std::size_t count, std::size_t place, float value) {
  std::vector<float> values(count, 1.0F);
  values[place] = value;
  return BytesOf(values);
}

const std::vector<Refusal>& Refusals() {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const auto invalid = StatusCode::kInvalidArgument;
  static const std::vector<Refusal> refusals{
      {"unknown table", [](auto& m) { m.set_table("adz"); }, StatusCode::kNotFound, "no table \"adz\""},
      {"no table", [](auto& m) { m.clear_table(); }, StatusCode::kNotFound, "no table \"\""},
      {"long table", [](auto& m) { m.set_table(std::string(5000, 'a')); }, StatusCode::kNotFound, "aaa...\""},
      {"no step", [](auto& m) { m.clear_step(); }, invalid, "step is missing"},
      {"part", [](auto& m) { m.mutable_step()->set_part(3); }, invalid, "step.part is 3"},
      {"parts", [](auto& m) { m.mutable_step()->set_parts(65537); }, invalid, "step.parts is 65537"},
      {"data type", [](auto& m) { m.set_data_type(static_cast<v1::DataType>(9)); }, invalid,
       "data_type is 9"},
      {"half a key", [](auto& m) { m.mutable_keys()->append("1234"); }, invalid, "keys has 36 bytes"},
      {"half an offset", [](auto& m) { m.mutable_offsets()->append("1"); }, invalid, "offsets has 21 bytes"},
      {"samples", [](auto& m) { m.set_samples(3); }, invalid, "offsets has 5 elements"},
      {"all the samples", [](auto& m) { m.set_samples(0xffff'ffffu); }, invalid, "samples is 4294967295"},
      {"no offsets",
       [](auto& m) {
         m.clear_offsets();
         m.set_samples(3);
       },
       invalid, "keys has 4 keys for 6 bags"},
      {"first offset",
       [](auto& m) {
         m.set_offsets(BytesOf<std::uint32_t>({1, 1, 1, 3, 4}));
       },
       invalid, "offsets[0] is 1"},
      {"falling",
       [](auto& m) {
         m.set_offsets(BytesOf<std::uint32_t>({0, 2, 1, 3, 4}));
       },
       invalid, "offsets[2] is 1"},
      {"last offset",
       [](auto& m) {
         m.set_offsets(BytesOf<std::uint32_t>({0, 1, 1, 3, 5}));
       },
       invalid, "offsets[4] is 5"},
      {"no gradients", [](auto& m) { m.clear_gradients(); }, invalid, "gradients has 0 bytes"},
      {"one too few", [](auto& m) { m.set_gradients(std::string(44, 0)); }, invalid,
       "gradients has 44 bytes"},
      {"half a gradient", [](auto& m) { m.set_gradients(std::string(47, 0)); }, invalid,
       "gradients has 47 bytes"},
      {"nan", [](auto& m) { m.set_gradients(Floats(12, 10, kNan)); }, invalid,
       "gradients[10] is nan (sample 1, slot 1, element 1)"},
      {"infinity", [](auto& m) { m.set_gradients(Floats(12, 0, -kInfinity)); }, invalid,
       "gradients[0] is -inf (sample 0, slot 0, element 0)"},
  };
  return refusals;
}

TEST(DecodePush, RefusesWhatIsWrongAndSaysWhere) {
  for (const Refusal& refusal : Refusals()) {
    v1::PushRequest message = SmallPush();
    refusal.spoil(message);
    const auto decoded = Push(message);
    ASSERT_FALSE(decoded.ok()) << refusal.what;
    EXPECT_EQ(decoded.status().code(), refusal.code) << refusal.what;
    EXPECT_NE(decoded.status().message().find(refusal.words), std::string::npos)
        << refusal.what << ": " << decoded.status().message();
    EXPECT_LT(decoded.status().message().size(), 300u) << refusal.what;
  }
}

TEST(DecodeLookup, RefusesAnUnknownMode) {
  v1::LookupRequest message = SmallLookup();
  message.set_mode(static_cast<v1::LookupMode>(12));
  const auto decoded = Lookup(message.SerializeAsString());
  ASSERT_FALSE(decoded.ok());
  EXPECT_EQ(decoded.status(), InvalidArgument("mode is 12, which is no LookupMode"));
}

// Weights.

TEST(DecodeLookup, ReadsWeights) {
  v1::LookupRequest message = SmallLookup();
  EXPECT_EQ(Lookup(message.SerializeAsString())->request.batch.weights.size(), 0u);
  message.set_weights(BytesOf<float>({0.5F, -1.0F, 0.0F, 3.0F}));
  const auto decoded = Lookup(message.SerializeAsString());
  ExpectSmallLookup(decoded);
  EXPECT_EQ(BytesOf(decoded->request.batch.weights.span()), message.weights());
}

TEST(DecodePush, ReadsWeights) {
  v1::PushRequest message = SmallPush();
  message.set_weights(BytesOf<float>({0.5F, -1.0F, 0.0F, 3.0F}));
  const auto decoded = test::Must(Push(message));
  EXPECT_EQ(BytesOf(decoded.batch.weights.span()), message.weights());
}

TEST(Decode, RefusesWeightsThatAreNotOneAKeyOrNotFinite) {
  v1::LookupRequest message = SmallLookup();
  const auto expect = [&](const std::string& weights, const std::string& why) {
    message.set_weights(weights);
    EXPECT_EQ(Lookup(message.SerializeAsString()).status(), InvalidArgument(why));
  };
  expect(BytesOf<float>({1, 2, 3}), "weights has 3 elements: must have one for each of the 4 keys, or none");
  expect("seven b", "weights has 7 bytes, not a multiple of 4");
  expect(BytesOf<float>({1, 2, std::numeric_limits<float>::quiet_NaN(), 4}),
         "weights[2] is nan: must be finite");
}

// Tables without a combiner.

Result<TableInfo> FindPlain(std::string_view, Rights) {
  TableOptions options = AdsTable();
  options.slots = 1;
  options.combiner = Combiner::kNone;
  return TableInfo{TableId{8}, options};
}

TEST(Decode, TakesOneKeyABagWhereThereIsNoCombiner) {
  v1::LookupRequest message;
  message.set_samples(3);
  message.set_keys(BytesOf<std::uint64_t>({5, 6, 5}));
  const auto decode = [&] { return DecodeLookup(BufferOf(message.SerializeAsString()), FindPlain); };
  EXPECT_TRUE(decode().ok());
  message.set_offsets(BytesOf<std::uint32_t>({0, 1, 2, 3}));
  EXPECT_TRUE(decode().ok());
  message.set_offsets(BytesOf<std::uint32_t>({0, 1, 1, 3}));
  EXPECT_EQ(decode().status(),
            InvalidArgument(
                "offsets[2] is 1: in a table without a combiner every bag has one key, so it must be 2"));
}

// Half precision.

TEST(DecodePush, KeepsHalvesAsTheyCome) {
  v1::PushRequest message = SmallPush();
  const std::string wide = message.gradients();
  const auto expect = [&](v1::DataType wire_type, DataType type, const std::vector<std::uint16_t>& halves) {
    message.set_data_type(wire_type);
    message.set_gradients(BytesOf(halves));
    const auto push = test::Must(Push(message));
    EXPECT_EQ(push.batch.value_type, type);
    EXPECT_EQ(push.batch.values.size(), 6U);
    EXPECT_EQ(BytesOf(push.batch.values.span()), message.gradients());
  };
  std::vector<std::uint16_t> halves(12);
  for (std::size_t i = 0; i < 12; ++i) halves[i] = ToFloat16(static_cast<float>(i));
  expect(v1::DATA_TYPE_FLOAT16, DataType::kFloat16, halves);
  for (std::size_t i = 0; i < 12; ++i) halves[i] = ToBFloat16(static_cast<float>(i));
  expect(v1::DATA_TYPE_BFLOAT16, DataType::kBFloat16, halves);

  halves[7] = 0xFF80;  // minus infinity
  message.set_gradients(BytesOf(halves));
  EXPECT_EQ(Push(message).status().message(),
            "gradients[7] is -inf (sample 1, slot 0, element 1); gradients must be finite");
  message.set_gradients(wide);
  EXPECT_EQ(Push(message).status().message(),
            "gradients has 48 bytes, but samples 2 x slots 2 x dim 3 bfloat16 values are 24");
}

TEST(DecodeLookup, ReadsHowTheReplyShallBeWritten) {
  v1::LookupRequest message = SmallLookup();
  EXPECT_EQ(Lookup(message.SerializeAsString())->request.type, DataType::kFloat32);
  message.set_data_type(v1::DATA_TYPE_FLOAT16);
  EXPECT_EQ(Lookup(message.SerializeAsString())->request.type, DataType::kFloat16);
  message.set_data_type(v1::DATA_TYPE_BFLOAT16);
  EXPECT_EQ(Lookup(message.SerializeAsString())->request.type, DataType::kBFloat16);
  message.set_data_type(static_cast<v1::DataType>(9));
  EXPECT_EQ(Lookup(message.SerializeAsString()).status(),
            InvalidArgument("data_type is 9, which is no DataType"));
}

}  // namespace
}  // namespace slotwise
