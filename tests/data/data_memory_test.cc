// Tests the limits of a server's memory that calls of the data transport take.
#include <gmock/gmock.h>
#include <malloc.h>
#include <sys/resource.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "server/data/data_call.h"
#include "tests/data/data_server_fixture.h"
#include "wire/status_code.h"

namespace slotwise {
namespace {

using test::MetClient;
using ::testing::HasSubstr;

std::uint32_t Number(StatusCode code) { return WireCode(code); }

TEST_F(DataServerTest, KeepsNothingOfALargeCallOnceItIsAnswered) {
  OpenWithAds();
  const auto bytes_in_use = [] {
    const auto heap = ::mallinfo2();
    return heap.uordblks + heap.hblkhd;
  };
  constexpr std::size_t kClients = 24;
  v1::DataCall many;
  many.set_id(1);
  many.set_many(true);
  many.set_timeout_ms(kMinuteMs);
  for (int i = 0; i < 60'000; ++i) {
    many.add_lookups();
    many.add_arrays();
  }
  const std::string head = many.SerializeAsString();
  many.Clear();
  std::vector<std::unique_ptr<MetClient>> clients;
  for (std::size_t c = 0; c < kClients; ++c) {
    clients.push_back(std::make_unique<MetClient>(server_->port()));
  }
  const std::size_t before = bytes_in_use();
  for (const auto& client : clients) {
    ASSERT_TRUE(client->SendFrame(head));
    const auto reply = client->Receive();
    ASSERT_TRUE(reply);
    EXPECT_NE(reply->head.code(), 0U) << "a lookup of no table";
    // What has answered the next call is done with the one before.
    client->Ask(Lookup(2));
  }
  const std::size_t after = bytes_in_use();
  EXPECT_LE(after, before + kClients * 64 * 1024);
}

TEST_F(DataServerTest, TakesNoMoreThanItsMemoryForWhatIsOnItsWay) {
  // 4 messages of 1 MiB are the least that are received at once.
  OpenWithAds({.max_message_bytes = 1 << 20, .max_queue_bytes = 1 << 20});
  const std::uint64_t body_bytes = (1 << 20) - 4096;
  v1::DataCall call;
  call.set_id(1);
  call.set_timeout_ms(kMinuteMs);
  call.add_lookups()->set_table("ads");
  call.add_arrays()->set_keys(body_bytes);
  const std::string head = call.SerializeAsString();
  const std::string begin = test::PrefixOf(static_cast<std::uint32_t>(head.size()), body_bytes) + head;
  // Four connections have sent heads, and hold memory for their bodies, which do not come.
  std::vector<std::unique_ptr<MetClient>> holders;
  for (int i = 0; i < 4; ++i) {
    holders.push_back(std::make_unique<MetClient>(server_->port()));
    ASSERT_TRUE(holders.back()->SendBytes(begin.data(), begin.size()));
  }
  // Whether the server has read all of them is seen when a fifth is refused.
  MetClient fifth(server_->port());
  const std::string body(body_bytes, 0);
  for (int tries = 0;; ++tries) {
    ASSERT_LT(tries, 10'000);
    call.set_id(static_cast<std::uint64_t>(tries));
    const auto reply = fifth.Ask(call, body);
    if (reply.head.code() != Number(StatusCode::kResourceExhausted)) continue;
    EXPECT_GT(reply.head.retry_after_ms(), 0U);
    EXPECT_THAT(reply.head.message(), HasSubstr("limits.max_queue_mib"));
    break;
  }
  // It is served once they are gone.
  holders.clear();
  for (int tries = 0;; ++tries) {
    ASSERT_LT(tries, 10'000);
    call.set_id(static_cast<std::uint64_t>(tries));
    const auto reply = fifth.Ask(call, body);
    if (reply.head.code() == Number(StatusCode::kInvalidArgument)) break;
  }
}

TEST_F(DataServerTest, ServesOthersWhileLargeHeadsAreAnnounced) {
  OpenWithAds({.max_message_bytes = 1 << 20, .max_queue_bytes = 1 << 20});
  // More has come than is held for nothing.
  const std::string begin = test::PrefixOf(1 << 20, 0) + std::string(20'000, 0x22);
  std::vector<std::unique_ptr<MetClient>> holders;
  for (int i = 0; i < 16; ++i) {
    holders.push_back(std::make_unique<MetClient>(server_->port()));
    ASSERT_TRUE(holders.back()->SendBytes(begin.data(), begin.size()));
  }
  MetClient other(server_->port());
  for (std::uint64_t id = 1; id <= 100; ++id) {
    const auto reply = other.Ask(Lookup(id));
    ASSERT_EQ(reply.head.code(), 0U) << reply.head.message();
  }
}

TEST_F(DataServerTest, EndsCallsOfTooManyMessagesBeforeTheyTakeMemory) {
  OpenWithAds();
  const auto largest = [] {
    rusage use{};
    ::getrusage(RUSAGE_SELF, &use);
    return use.ru_maxrss;  // KiB
  };
  std::string head(std::size_t{4} << 20, 0);
  const long before = largest();
  for (const char field : {0x22, 0x2A, 0x32}) {  // lookups, pushes, arrays
    for (std::size_t i = 0; i < head.size(); i += 2) head[i] = field;
    MetClient client(server_->port());
    static_cast<void>(client.SendFrame(head));
    EXPECT_TRUE(client.Ended());
  }
  EXPECT_LT(largest(), before + 48 * 1024);
}

TEST(AHeadOfACall, IsParsedOnlyIfItHasFewFieldsAndEnds) {
  const auto objection = [](const std::string& head) {
    return HeadObjection(std::as_bytes(std::span(head)));
  };
  v1::DataCall call;
  call.set_id(1);
  call.set_timeout_ms(60'000);
  call.set_many(true);
  for (int i = 0; i < 65'536; ++i) {
    call.add_lookups()->set_table("ads");
    call.add_arrays()->set_keys(8);
  }
  const std::string most = call.SerializeAsString();
  EXPECT_EQ(objection(most), "");
  EXPECT_EQ(objection(""), "");
  EXPECT_THAT(objection(most.substr(0, most.size() - 1)), HasSubstr("no DataCall"));
  EXPECT_THAT(objection(std::string(300'000, 0x08)), HasSubstr("more than 65536 messages"));  // varints
  EXPECT_THAT(objection("\x23\x24"), HasSubstr("no DataCall")) << "a group";
  EXPECT_THAT(objection(std::string("\x22\xFF\xFF\xFF\xFF\x0F", 6)), HasSubstr("no DataCall"));
}

}  // namespace
}  // namespace slotwise
