#include "server/rpc/decode_rows.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "slotwise/v1/rows.pb.h"
#include "tests/rpc/messages.h"

namespace slotwise {
namespace {

// Finds "ads" with Adam and dim 3, so that a row has 6 floats of state, of which the last 3 are squares.
Result<TableInfo> FindAdam(std::string_view name, Rights needs) {
  auto table = FindAds(name, needs);
  if (table.ok()) table->options.optimizer.kind = OptimizerKind::kAdam;
  return table;
}

v1::ImportRequest SmallImport() {
  v1::ImportRequest message;
  message.set_table("ads");
  message.set_keys(BytesOf<std::uint64_t>({5, ~std::uint64_t{0}}));
  message.set_values(BytesOf<float>({1, 2, 3, 4, 5, 6}));
  return message;
}

Result<ImportRequest> Import(const v1::ImportRequest& message, std::optional<TableInfo> before = {}) {
  return DecodeImport(BufferOf(message.SerializeAsString()), FindAdam, before);
}

TEST(DecodeImport, ReadsRowsWithAndWithoutState) {
  v1::ImportRequest message = SmallImport();
  auto request = Import(message);
  ASSERT_TRUE(request.ok()) << request.status().message();
  EXPECT_EQ(request->table, TableId{7});
  EXPECT_FALSE(request->with_state);
  EXPECT_EQ(BytesOf(request->batch.keys.span()), message.keys());
  EXPECT_EQ(BytesOf(request->batch.offsets.span()), BytesOf<std::uint32_t>({0, 1, 2}));
  EXPECT_EQ(BytesOf(request->batch.values.span()), message.values());

  message.set_state(BytesOf<float>({-.1F, -.2F, -.3F, .4F, .5F, .6F, .7F, .8F, .9F, 0, 0, 0}));
  request = Import(message);
  ASSERT_TRUE(request.ok()) << request.status().message();
  EXPECT_TRUE(request->with_state);
  EXPECT_EQ(BytesOf(request->batch.values.span()),
            BytesOf<float>({1, 2, 3, -.1F, -.2F, -.3F, .4F, .5F, .6F, 4, 5, 6, .7F, .8F, .9F, 0, 0, 0}));
}

TEST(DecodeImport, NamesWhatIsWrong) {
  const auto expect = [](v1::ImportRequest message, const std::string& why) {
    EXPECT_EQ(Import(message).status(), InvalidArgument(why));
  };
  v1::ImportRequest message = SmallImport();
  message.set_keys("123456789");
  expect(message, "keys has 9 bytes, not a multiple of 8");
  message = SmallImport();
  message.set_values(BytesOf<float>({1, 2, 3}));
  expect(message, "values has 12 bytes, but 2 keys x 3 floats are 24");
  message.set_values(BytesOf<float>({1, 2, 3, std::numeric_limits<float>::infinity(), 5, 6}));
  expect(message, "values[3] is inf: must be finite");
  message = SmallImport();
  message.set_state(BytesOf<float>({1, 2, 3}));
  expect(message, "state has 12 bytes, but 2 keys x 6 floats are 48");
  message = SmallImport();
  message.set_table_steps((std::uint64_t{1} << 62) + 1);
  expect(message, "table_steps is 4611686018427387905: must be at most 4611686018427387904");
  message = SmallImport();
  message.set_state(BytesOf<float>({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -2, 0}));
  expect(message, "state[10] is -2.000000 (row 1): a sum or mean of squares must not be negative");
  message = SmallImport();
  message.set_table("beds");
  EXPECT_EQ(Import(message).status(), NotFound("there is no table \"beds\""));
}

TEST(DecodeImport, RemembersTheStreamsTable) {
  v1::ImportRequest message = SmallImport();
  message.clear_table();
  EXPECT_EQ(Import(message).status().code(), StatusCode::kNotFound);
  const auto before = FindAdam("ads", Rights::kRows);
  EXPECT_TRUE(Import(message, *before).ok());
  message.set_table("ads");
  EXPECT_TRUE(Import(message, *before).ok());
  message.set_table("beds");
  EXPECT_EQ(Import(message, *before).status(),
            InvalidArgument("table is \"beds\", but the stream's first message named \"ads\""));
}

TEST(DecodeErase, ReadsKeys) {
  v1::EraseRequest message;
  message.set_table("ads");
  message.set_keys(BytesOf<std::uint64_t>({5, 6, 5}));
  const auto request = DecodeErase(BufferOf(message.SerializeAsString()), FindAds);
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->batch.samples, 3u);
  EXPECT_EQ(BytesOf(request->batch.keys.span()), message.keys());
  message.set_keys("abc");
  EXPECT_EQ(DecodeErase(BufferOf(message.SerializeAsString()), FindAds).status(),
            InvalidArgument("keys has 3 bytes, not a multiple of 8"));
}

TEST(DecodeExport, TellsAllKeysFromSome) {
  v1::ExportRequest message;
  message.set_table("ads");
  auto what = DecodeExport(BufferOf(message.SerializeAsString()), FindAds);
  ASSERT_TRUE(what.ok());
  EXPECT_FALSE(what->keys.has_value());
  EXPECT_FALSE(what->with_state);
  message.set_keys(BytesOf<std::uint64_t>({9, 8}));
  message.set_with_state(true);
  what = DecodeExport(BufferOf(message.SerializeAsString()), FindAds);
  EXPECT_EQ(what->keys, (std::vector<Key>{Key{9}, Key{8}}));
  EXPECT_TRUE(what->with_state);
}

}  // namespace
}  // namespace slotwise
