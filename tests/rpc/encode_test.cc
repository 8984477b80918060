#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "server/rpc/embedding_service.h"
#include "server/rpc/encode_rows.h"
#include "slotwise/v1/rows.pb.h"
#include "tests/rpc/messages.h"

namespace slotwise {
namespace {

template <class T>
PooledValues Values(const std::vector<T>& from, DataType type = DataType::kFloat32) {
  std::shared_ptr<T[]> values(new T[from.size()]);
  std::copy(from.begin(), from.end(), values.get());
  return {values, from.size(), type, {44, 55}};
}

TEST(EncodeLookupReply, IsAPlainMessage) {
  const std::vector<float> values{1.5F, -2.0F, 0.0F, 4.0F, 5.0F, 6.0F};
  v1::LookupReply reply;
  ASSERT_TRUE(reply.ParseFromString(StringOf(EncodeLookupReply({2, 3, Values(values), 66}, 33))));
  EXPECT_EQ(reply.samples(), 2u);
  EXPECT_EQ(reply.width(), 3u);
  EXPECT_EQ(reply.incarnation(), 33u);
  EXPECT_EQ(reply.lineage(), 44u);
  EXPECT_EQ(reply.table_step(), 55u);
  EXPECT_EQ(reply.lost_from(), 66u);
  EXPECT_EQ(reply.data_type(), v1::DATA_TYPE_FLOAT32);
  EXPECT_EQ(reply.values(), BytesOf(values));
}

TEST(EncodeLookupReply, IsAsProtobufWouldWriteItForEveryLengthOfLength) {
  for (const std::uint32_t samples : {0u, 1u, 31u, 32u, 4095u, 4096u, 600'000u}) {
    v1::LookupReply expected;
    expected.set_samples(samples);
    expected.set_width(1);
    expected.set_data_type(v1::DATA_TYPE_FLOAT32);
    expected.set_incarnation(33);
    expected.set_lineage(44);
    expected.set_table_step(55);
    const std::vector<float> values(samples, 0.25F);
    expected.set_values(BytesOf(values));
    EXPECT_EQ(StringOf(EncodeLookupReply({samples, 1, Values(values)}, 33)), expected.SerializeAsString())
        << samples;
  }
}

TEST(EncodeLookupReply, SendsTheValuesFromWhereTheyLieAndThenLetsThemGo) {
  PooledValues values = Values(std::vector<float>(1000, 1.0F));
  const std::weak_ptr<const void> watch = values.values;
  const void* memory = values.values.get();

  std::optional<grpc::ByteBuffer> buffer = EncodeLookupReply({10, 100, std::move(values)}, 33);
  EXPECT_FALSE(watch.expired());
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(buffer->Dump(&slices).ok());
  ASSERT_EQ(slices.size(), 2u);
  EXPECT_EQ(slices[1].begin(), memory);

  buffer.reset();
  EXPECT_FALSE(watch.expired());
  slices.clear();
  EXPECT_TRUE(watch.expired());
}

TEST(EncodeLookupReply, SaysWhichTypeTheNumbersAre) {
  const std::vector<std::uint16_t> halves{0x3E00, 0xC000, 0x0000, 0x7C00, 0x0001, 0x8000};
  for (const auto& [type, wire_type] : {std::pair(DataType::kFloat16, v1::DATA_TYPE_FLOAT16),
                                        std::pair(DataType::kBFloat16, v1::DATA_TYPE_BFLOAT16)}) {
    PooledValues values = Values(halves, type);
    const void* memory = values.values.get();
    const auto buffer = EncodeLookupReply({2, 3, std::move(values)}, 33);
    v1::LookupReply reply;
    ASSERT_TRUE(reply.ParseFromString(StringOf(buffer)));
    EXPECT_EQ(reply.data_type(), wire_type);
    EXPECT_EQ(reply.values(), BytesOf(halves));
    std::vector<grpc::Slice> slices;
    ASSERT_TRUE(buffer.Dump(&slices).ok());
    EXPECT_EQ(slices.at(1).begin(), memory);
  }
}

TEST(EncodeExportReply, PartsValuesFromState) {
  const RowRecords rows{{Key{7}, Key{8}}, {1, 2, 0.1F, 3, 4, 0.2F}};
  v1::ExportReply reply;
  ASSERT_TRUE(reply.ParseFromString(StringOf(EncodeExportReply(rows, 2, 1, true, 77))));
  EXPECT_EQ(reply.dim(), 2u);
  EXPECT_EQ(reply.state_size(), 1u);
  EXPECT_EQ(reply.keys(), BytesOf<std::uint64_t>({7, 8}));
  EXPECT_EQ(reply.values(), BytesOf<float>({1, 2, 3, 4}));
  EXPECT_EQ(reply.state(), BytesOf<float>({0.1F, 0.2F}));
  ASSERT_TRUE(reply.ParseFromString(StringOf(EncodeExportReply(rows, 2, 1, false, 77))));
  EXPECT_EQ(reply.state_size(), 0u);
  EXPECT_EQ(reply.values(), BytesOf<float>({1, 2, 3, 4}));
  EXPECT_EQ(reply.state(), "");
}

TEST(EncodePushReply, IsAPlainMessage) {
  v1::PushReply reply;
  const PushAnswer answer{{0x1'0000'0001u, {22, 0x1'0000'0002u}}, 0x1'0000'0003u};
  ASSERT_TRUE(reply.ParseFromString(StringOf(EncodePushReply(answer, 33))));
  EXPECT_EQ(reply.table_step(), 0x1'0000'0001u);
  EXPECT_EQ(reply.newest_step(), 0x1'0000'0002u);
  EXPECT_EQ(reply.lost_from(), 0x1'0000'0003u);
  EXPECT_EQ(reply.lineage(), 22u);
  EXPECT_EQ(reply.incarnation(), 33u);
}

}  // namespace
}  // namespace slotwise
