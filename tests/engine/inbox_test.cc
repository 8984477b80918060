// The inbox: any thread adds, the engine takes.
#include "server/engine/inbox.h"

#include <gtest/gtest.h>

#include <thread>

namespace slotwise {
namespace {

using std::chrono::microseconds;

Request LookupOf(std::size_t keys, Status* outcome = nullptr) {
  LookupRequest request;
  request.batch.keys = HostArray<Key>(keys);
  request.done = [outcome](const Result<PooledValues>& result) {
    if (outcome != nullptr) *outcome = result.status();
  };
  return request;
}

TEST(Inbox, GivesTheOldestFirstAndNoMoreThanAsked) {
  Inbox inbox(1 << 20);
  for (std::size_t keys = 1; keys <= 3; ++keys) {
    Request request = LookupOf(keys);
    ASSERT_TRUE(inbox.Add(request).ok());
  }
  const auto first = inbox.Take(2);
  ASSERT_EQ(first.requests.size(), 2U);
  EXPECT_EQ(Describe(first.requests[0]).keys, 1U);
  EXPECT_EQ(Describe(first.requests[1]).keys, 2U);
  EXPECT_FALSE(first.closed);
  EXPECT_EQ(Describe(inbox.Take(2).requests.at(0)).keys, 3U);
}

TEST(Inbox, RefusesWhatIsTooMuchUntilSomeIsReleased) {
  Inbox inbox(100);
  Request large = LookupOf(100);  // alone, any request fits
  ASSERT_TRUE(inbox.Add(large).ok());
  Request next = LookupOf(1);
  EXPECT_EQ(inbox.Add(next).code(), StatusCode::kUnavailable);
  const std::uint64_t bytes = BytesOf(inbox.Take(1).requests.at(0));
  EXPECT_EQ(bytes, 800U);
  EXPECT_EQ(inbox.Add(next).code(), StatusCode::kUnavailable) << "taken is not yet answered";
  inbox.Release(bytes);
  EXPECT_TRUE(inbox.Add(next).ok());
}

TEST(Inbox, TakesNothingOnceClosedButGivesWhatItHas) {
  Inbox inbox(1 << 20);
  Request before = LookupOf(1);
  ASSERT_TRUE(inbox.Add(before).ok());
  inbox.Close();
  Status outcome;
  Request after = LookupOf(1, &outcome);
  const Status refused = inbox.Add(after);
  EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
  Refuse(after, refused);
  EXPECT_EQ(outcome, refused);
  const auto taken = inbox.Take(8);
  EXPECT_EQ(taken.requests.size(), 1U);
  EXPECT_TRUE(taken.closed);
}

TEST(Inbox, WaitsForNewsAndClosingIsNewsOnce) {
  Inbox inbox(1 << 20);
  EXPECT_FALSE(inbox.AwaitNews(microseconds(0)));
  std::thread other([&] {
    Request request = LookupOf(1);
    EXPECT_TRUE(inbox.Add(request).ok());
  });
  EXPECT_TRUE(inbox.AwaitNews(std::chrono::minutes(1)));
  other.join();
  EXPECT_EQ(inbox.Take(8).requests.size(), 1U);
  inbox.Close();
  EXPECT_TRUE(inbox.AwaitNews(microseconds(0)));
  EXPECT_TRUE(inbox.Take(8).closed);
  inbox.Close();
  EXPECT_FALSE(inbox.AwaitNews(microseconds(0)));
}

}  // namespace
}  // namespace slotwise
