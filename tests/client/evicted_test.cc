// The client puts its answer together of pages, also if the server forgets keys between two pages.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "slotwise/client.h"
#include "tests/client/fake_server.h"

namespace slotwise {
namespace {

// Makes a reply with these keys by round.
v1::ListEvictedReply Page(const std::map<std::uint64_t, std::vector<std::uint64_t>>& rounds) {
  v1::ListEvictedReply page;
  for (const auto& [round, keys] : rounds) {
    v1::EvictedKeys& gone = *page.add_rounds();
    gone.set_round(round);
    gone.set_by(v1::EVICTED_BY_TIME_TO_LIVE);
    gone.set_keys(keys.data(), keys.size() * sizeof(std::uint64_t));
  }
  page.set_incarnation(77);
  page.set_lineage(5);
  page.set_through_round(9);
  return page;
}

class EvictedTest : public testing::Test {
 protected:
  // Says that a further page follows.
  static v1::ListEvictedReply WithMore(v1::ListEvictedReply page, std::uint64_t after, std::uint64_t seen) {
    page.set_more(true);
    page.set_next_after_round(after);
    page.set_next_keys_seen(seen);
    return page;
  }
  Result<EvictedRounds> Evicted(const EvictedSince& since) {
    auto client = Client::Connect(server_.addresses());
    if (!client.ok()) return client.status();
    return client->Evicted("ads", since);
  }

  FakeServer server_;
};

TEST_F(EvictedTest, ARoundMayLieOnSeveralPages) {
  server_.evicted_pages = {WithMore(Page({{4, {1}}, {7, {2, 3}}}), 6, 2), Page({{7, {5}}, {8, {6}}})};
  server_.evicted_pages[0].set_complete_after(3);
  server_.evicted_pages[1].set_complete_after(6);
  const auto answer = Evicted({.round = 3, .instance = 70});
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  ASSERT_EQ(answer->rounds.size(), 3U);
  EXPECT_EQ(answer->rounds[1].round, 7U);
  EXPECT_EQ(answer->rounds[1].by, EvictedBy::kTimeToLive);
  EXPECT_EQ(answer->rounds[1].keys, (std::vector<Key>{Key{2}, Key{3}, Key{5}}));
  EXPECT_EQ(answer->keys(), 5U);
  EXPECT_EQ(answer->complete_after, 3U);
  EXPECT_FALSE(answer->gap);
  EXPECT_EQ(answer->through_round, 9U);
  EXPECT_EQ(answer->instance, 77U);
  EXPECT_EQ(answer->generation, 5U);
  const v1::ListEvictedRequest& first = server_.evicted_requests[0];
  EXPECT_EQ(std::pair(first.after_round(), first.incarnation()), std::pair(3UL, 70UL));
  const v1::ListEvictedRequest& next = server_.evicted_requests[1];
  EXPECT_EQ(std::pair(next.after_round(), next.keys_seen()), std::pair(6UL, 2UL));
  EXPECT_EQ(std::pair(next.through_round(), next.incarnation()), std::pair(9UL, 77UL));
}

TEST_F(EvictedTest, PagesBeforeAGapAreNotPartOfTheAnswer) {
  server_.evicted_pages = {WithMore(Page({{4, {1}}}), 4, 0), Page({{11, {6}}})};
  server_.evicted_pages[1].set_gap(true);
  server_.evicted_pages[1].set_complete_after(10);
  server_.evicted_pages[1].set_through_round(12);
  const auto answer = Evicted({.round = 3});
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  ASSERT_EQ(answer->rounds.size(), 1U);
  EXPECT_EQ(answer->rounds[0].round, 11U);
  EXPECT_TRUE(answer->gap);
  EXPECT_EQ(answer->complete_after, 10U);
  EXPECT_EQ(answer->through_round, 12U);
}

TEST_F(EvictedTest, ADamagedPageIsRefused) {
  server_.evicted_pages = {Page({{4, {1}}})};
  server_.evicted_pages[0].mutable_rounds(0)->set_keys("1234567");
  EXPECT_EQ(Evicted({}).status().code(), StatusCode::kInternal);
  server_.evicted_requests.clear();
  server_.evicted_pages = {WithMore(Page({{4, {1}}}), 4, 0), Page({{3, {1}}})};
  EXPECT_EQ(Evicted({}).status().code(), StatusCode::kInternal) << "rounds ascend";
}

}  // namespace
}  // namespace slotwise
