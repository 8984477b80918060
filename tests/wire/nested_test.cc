#include "wire/nested.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "slotwise/v1/embedding.pb.h"
#include "tests/rpc/messages.h"

namespace slotwise {
namespace {

constexpr int kLookups = v1::LookupManyRequest::kLookupsFieldNumber;

v1::LookupManyRequest ThreeLookups() {
  v1::LookupManyRequest request;
  request.add_lookups()->set_keys(std::string(300, 'a'));
  request.add_lookups();  // an empty message still counts
  request.add_lookups()->set_table("ads");
  return request;
}

Result<std::vector<grpc::ByteBuffer>> Split(const grpc::ByteBuffer& bytes) {
  return SplitMessages(bytes, kLookups, "slotwise.v1.LookupManyRequest");
}

TEST(SplitMessages, FindsEachHoweverGrpcSlicedTheWhole) {
  const v1::LookupManyRequest request = ThreeLookups();
  const std::string bytes = request.SerializeAsString();
  for (std::size_t slice = 1; slice <= bytes.size(); ++slice) {
    const auto messages = Split(BufferOf(bytes, slice));
    ASSERT_TRUE(messages.ok());
    ASSERT_EQ(messages->size(), 3u);
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(StringOf((*messages)[static_cast<std::size_t>(i)]), request.lookups(i).SerializeAsString());
    }
  }
}

TEST(SplitMessages, SkipsOtherFieldsAndRefusesWhatIsCutShort) {
  const std::string bytes = ThreeLookups().SerializeAsString();
  const std::string unknown("\x10\x07", 2);  // field 2, a varint
  EXPECT_EQ(Split(BufferOf(unknown + bytes + unknown))->size(), 3u);
  EXPECT_EQ(Split(BufferOf(""))->size(), 0u);
  int refused = 0;
  for (std::size_t size = 1; size < bytes.size(); ++size) {
    const auto messages = Split(BufferOf(std::string_view(bytes).substr(0, size)));
    refused += messages.ok() ? 0 : 1;
    EXPECT_TRUE(messages.ok() || messages.status().code() == StatusCode::kInvalidArgument);
  }
  // A message that is cut between submessages is not refused.
  EXPECT_EQ(refused, static_cast<int>(bytes.size()) - 3);
}

// An empty message has two bytes, so a request within the size limit could expand to gigabytes of empty
// messages.
TEST(SplitMessages, TakesOnlySoMany) {
  std::string bytes;
  for (std::size_t i = 0; i < kMostMessages; ++i) bytes += std::string("\x0a\x00", 2);
  // The request has as many slices as bytes: a search for each message from the first slice on would take
  // minutes.
  const auto most = Split(BufferOf(bytes, 1));
  ASSERT_TRUE(most.ok());
  EXPECT_EQ(most->size(), kMostMessages);
  EXPECT_EQ(Split(BufferOf(bytes + std::string("\x0a\x00", 2))).status(),
            InvalidArgument("the slotwise.v1.LookupManyRequest holds more than 65536 requests")
                .Because(Reason::kMalformed));
}

TEST(JoinMessages, IsWhatProtobufWouldWrite) {
  const v1::LookupManyRequest request = ThreeLookups();
  std::vector<grpc::ByteBuffer> messages;
  for (const v1::LookupRequest& lookup : request.lookups()) {
    messages.push_back(BufferOf(lookup.SerializeAsString(), 7));
  }
  EXPECT_EQ(StringOf(JoinMessages(kLookups, messages)), request.SerializeAsString());
  EXPECT_EQ(StringOf(JoinMessages(kLookups, {})), "");
}

}  // namespace
}  // namespace slotwise
