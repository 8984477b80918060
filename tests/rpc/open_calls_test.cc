// Even if one client opens all calls that it can, every connection gets its first ones, and each newcomer a
// share of the others.
#include "server/rpc/open_calls.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace slotwise {
namespace {

using Opened = OpenCalls::Opened;

class Connection {
 public:
  explicit Connection(SharedCalls& shared, std::uint64_t most = 1000) : calls_(shared, most) {}

  Opened Open() { return calls_.Open(newest_ += 2); }
  // Returns how many calls it opens until there is no room for the next.
  std::uint64_t OpenAll() {
    while (Open() == Opened::kYes) {
    }
    return open();
  }
  void CloseNewest(int calls) {
    std::uint32_t stream = newest_;
    for (const std::uint64_t left = open() - calls; open() > left; stream -= 2) calls_.Reset(stream);
  }
  void End() { calls_.CloseAll(); }
  std::uint64_t open() const { return calls_.open(); }

 private:
  OpenCalls calls_;
  std::uint32_t newest_ = 1;
};

class OpenCallsTest : public testing::Test {
 protected:
  void Connect(int count) {
    for (int i = 0; i < count; ++i) connections_.push_back(std::make_unique<Connection>(shared_));
  }
  // Returns how many calls each opens, one after the other.
  std::vector<std::uint64_t> EachOpensAll() {
    std::vector<std::uint64_t> opened;
    for (const auto& connection : connections_) opened.push_back(connection->OpenAll());
    return opened;
  }

  SharedCalls shared_;
  std::vector<std::unique_ptr<Connection>> connections_;
};

using Counts = std::vector<std::uint64_t>;
// 64 calls and 16 connections: two for each, and 16, 8, 4, 2, 1 and 1 of the other 32.
Counts Shares() { return {18, 10, 6, 4, 3, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2}; }

TEST_F(OpenCallsTest, KeepsHalfForTheFirstCallsOfAllConnections) {
  shared_.Limit(64, 16);
  Connect(16);
  EXPECT_EQ(EachOpensAll(), Shares());
  EXPECT_EQ(shared_.open(), 64u) << "none is wasted";
  Connection more(shared_);
  EXPECT_EQ(more.Open(), Opened::kTooManyOfAll) << "one connection too many";
}

TEST_F(OpenCallsTest, ServesConnectionsWithFewCallsWhateverOthersHave) {
  shared_.Limit(64, 16);
  Connect(8);
  EachOpensAll();
  for (int i = 0; i < 8; ++i) {
    Connection newcomer(shared_);
    EXPECT_EQ(newcomer.Open(), Opened::kYes);
    for (int call = 0; call < 10; ++call) {
      EXPECT_EQ(newcomer.Open(), Opened::kYes) << call;
      newcomer.CloseNewest(1);
    }
  }
}

TEST_F(OpenCallsTest, GivesEachCallBackToWhereItCameFrom) {
  shared_.Limit(64, 16);
  Connect(16);
  for (int i = 0; i < 100; ++i) {
    EachOpensAll();
    connections_[0]->CloseNewest(15);  // 3 are left, one of which is further
    EXPECT_EQ(connections_[6]->OpenAll(), 2u + 8u);
    connections_[0]->CloseNewest(2);
    EXPECT_EQ(connections_[7]->OpenAll(), 2u + 4u);
    if (i % 2 == 0) {
      for (const auto& connection : connections_) connection->End();
    } else {
      connections_.clear();
      Connect(16);
    }
    EXPECT_EQ(shared_.open(), 0u);
    ASSERT_EQ(EachOpensAll(), Shares()) << i;
    for (const auto& connection : connections_) connection->CloseNewest(static_cast<int>(connection->open()));
    EXPECT_EQ(shared_.open(), 0u);
  }
}

TEST_F(OpenCallsTest, SharesOneHalfWhereThereAreFewCallsForEachConnection) {
  for (const std::uint64_t most : {31, 16}) {
    shared_.Limit(most, 16);
    EXPECT_EQ(shared_.first(), 1u) << most;
  }
  Connection greedy(shared_);
  EXPECT_EQ(greedy.OpenAll(), 1u + 4u);
  Connect(11);  // as many as are left, beyond half of all
  EXPECT_EQ(EachOpensAll(), (Counts{3, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0}));
  EXPECT_EQ(shared_.open(), 16u);
}

TEST_F(OpenCallsTest, HasFirstCallsForEachConnectionAsTheyGoIntoHalf) {
  struct Case {
    std::uint64_t most;
    std::uint64_t connections;
    std::uint64_t first;
  };
  for (const auto& [most, connections, first] : std::vector<Case>{{16'384, 4096, 2},
                                                                  {16'383, 4096, 1},
                                                                  {24'575, 4096, 2},
                                                                  {24'576, 4096, 3},
                                                                  {1024, 1'000'000, 1},
                                                                  {4, 1, 2}}) {
    shared_.Limit(most, connections);
    EXPECT_EQ(shared_.first(), first) << most;
    EXPECT_TRUE(first == 1 || first * connections <= most / 2);
  }
  EXPECT_EQ(SharedCalls().first(), 2u);
  EXPECT_EQ(SharedCalls().most(), 16'384u);
}

TEST_F(OpenCallsTest, CountsByTheLimitsThatHeldWhenAConnectionCame) {
  shared_.Limit(64, 16);
  Connection old(shared_);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(old.Open(), Opened::kYes);
  shared_.Limit(64, 4);  // eight are first
  EXPECT_EQ(Connection(shared_, 8).OpenAll(), 8u);
  old.CloseNewest(5);
  shared_.Limit(64, 16);
  Connect(16);
  EXPECT_EQ(EachOpensAll(), Shares());
}

TEST_F(OpenCallsTest, SaysWhichBoundAConnectionPasses) {
  Connection one(shared_, 256);
  EXPECT_EQ(one.OpenAll(), 256u);
  EXPECT_EQ(one.Open(), Opened::kTooManyOfConnection);
}

TEST_F(OpenCallsTest, CountsWhatManyThreadsOpenAndClose) {
  shared_.Limit(64, 4);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([this] {
      for (int turn = 0; turn < 2000; ++turn) {
        Connection connection(shared_);
        for (int call = 0; call < 12; ++call) connection.Open();
        connection.CloseNewest(6);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(shared_.open(), 0u);
  shared_.Limit(64, 16);
  Connect(16);
  EXPECT_EQ(EachOpensAll(), Shares());
}

}  // namespace
}  // namespace slotwise
