// Callers' queues take turns, and keep each caller's order.
#include "server/engine/schedule/caller_queues.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/engine/operations/lookup.h"

namespace slotwise {
namespace {

// A message of `count` requests, whose keys are counted from `first`.
std::vector<Request> Message(std::size_t count, std::size_t first) {
  std::vector<Request> message;
  for (std::size_t i = 0; i < count; ++i) {
    LookupRequest request;
    request.batch.keys = BatchArray<Key>(first + i);
    message.emplace_back(std::move(request));
  }
  return message;
}

std::vector<std::uint32_t> Take(CallerQueues& queues, std::size_t most) {
  std::vector<std::uint32_t> keys;
  for (const Request& request : queues.Take(most)) keys.push_back(request.proposal().keys);
  return keys;
}

std::vector<std::uint32_t> Numbers(std::uint32_t first, std::uint32_t count) {
  std::vector<std::uint32_t> numbers;
  for (std::uint32_t i = 0; i < count; ++i) numbers.push_back(first + i);
  return numbers;
}

using Keys = std::vector<std::uint32_t>;

TEST(CallerQueues, GiveEachCallerAMessageInTurn) {
  CallerQueues queues;
  for (const std::size_t first : {10, 20, 30}) queues.Add(Caller("a"), Message(1, first));
  queues.Add(Caller("b"), Message(1, 11));
  queues.Add(Caller(), Message(1, 12));
  queues.Add(Caller("b"), Message(1, 21));
  EXPECT_EQ(Take(queues, 100), (Keys{10, 11, 12, 20, 21, 30}));
  EXPECT_TRUE(queues.empty());
}

TEST(CallerQueues, GiveTurnsAsOftenAsTheyAreSmall) {
  CallerQueues queues;
  queues.Add(Caller("large"), Message(3, 10));  // each message is three requests, that is, three shares
  queues.Add(Caller("large"), Message(3, 20));
  for (const std::size_t first : {1, 2, 3, 4}) queues.Add(Caller("small"), Message(1, first));
  EXPECT_EQ(Take(queues, 100), (Keys{1, 2, 3, 10, 11, 12, 4, 20, 21, 22}));
}

constexpr std::size_t kHuge = 200'000;  // keys, of 8 bytes

// Though all of the large ones came first, and no other caller has put off their turns.
TEST(CallerQueues, LetNoCallerWaitBehindTheLargeRequestsOfMany) {
  CallerQueues queues;
  for (const std::string name : {"a", "b", "c", "d"}) {
    for (int i = 0; i < 3; ++i) queues.Add(Caller(name), Message(1, kHuge));
  }
  for (std::uint32_t round = 1; round <= 8; ++round) {
    EXPECT_EQ(Take(queues, 1), Keys{kHuge});
    queues.Add(Caller("small"), Message(1, round));
    EXPECT_EQ(Take(queues, 1), Keys{round}) << "it is next, and alone";
  }
}

TEST(CallerQueues, TakeNothingMuchLargerBesideSmallRequests) {
  CallerQueues queues;
  queues.Add(Caller("large"), Message(1, kHuge));
  for (const std::string name : {"a", "b"}) queues.Add(Caller(name), Message(1, 7));
  EXPECT_EQ(Take(queues, 100), (Keys{7, 7}));
  EXPECT_EQ(Take(queues, 100), (Keys{kHuge}));
}

TEST(CallerQueues, BeginNoTurnOnceThereAreEnoughBytes) {
  CallerQueues queues;
  for (const std::string name : {"a", "b", "c", "d", "e"}) queues.Add(Caller(name), Message(2, 1000));
  EXPECT_EQ(queues.Take(100, 1).size(), 2U) << "a turn that has begun goes on";
  EXPECT_EQ(queues.Take(100, 16'008).size(), 2U);
  EXPECT_EQ(queues.Take(100, 16'009).size(), 4U);
  EXPECT_EQ(queues.Take(100, 16'009).size(), 2U);
  EXPECT_TRUE(queues.empty());
}

// A caller that sends one request after the other gets its share, and no more.
TEST(CallerQueues, RememberWhatACallerHadWhoComesAgain) {
  CallerQueues queues;
  for (int i = 0; i < 2; ++i) queues.Add(Caller("large"), Message(1, kHuge));
  int before = 0;  // requests of the other, who comes again at once
  for (std::uint32_t next = 1;; ++next, ++before) {
    queues.Add(Caller("small"), Message(1, next));
    if (Take(queues, 1) == Keys{kHuge}) break;
  }
  constexpr std::uint64_t kShares = (kHuge * sizeof(Key)) / CallerQueues::kRequestBytes;
  EXPECT_GE(before, static_cast<int>(kShares) - 2);
  EXPECT_LE(before, static_cast<int>(kShares) + 2);
}

TEST(CallerQueues, GoOnWithATurnThatATakeHasCutShort) {
  CallerQueues queues;
  queues.Add(Caller("a"), Message(5, 10));
  EXPECT_EQ(Take(queues, 3), (Keys{10, 11, 12}));
  queues.Add(Caller("b"), Message(2, 20));
  EXPECT_EQ(queues.size(), 4U);
  queues.Add(Caller("c"), Message(1, 30));
  EXPECT_EQ(Take(queues, 3), (Keys{13, 14, 30}));
  EXPECT_EQ(Take(queues, 3), (Keys{20, 21}));
  EXPECT_TRUE(Take(queues, 3).empty());
  EXPECT_EQ(queues.size(), 0U);
}

TEST(CallerQueues, EndTheTurnOfALongMessage) {
  constexpr std::uint32_t kTurn = CallerQueues::kTurn;
  CallerQueues queues;
  queues.Add(Caller("long"), Message(2 * kTurn + 5, 100));
  queues.Add(Caller("long"), Message(1, 9));
  EXPECT_EQ(Take(queues, kTurn - 1), Numbers(100, kTurn - 1));
  queues.Add(Caller("short"), Message(1, 7));
  EXPECT_EQ(Take(queues, 2), (Keys{100 + kTurn - 1, 7}));
  queues.Add(Caller("short"), Message(2, 7));
  EXPECT_EQ(Take(queues, kTurn), (Keys{7, 8}));
  EXPECT_EQ(Take(queues, kTurn), Numbers(100 + kTurn, kTurn));
  EXPECT_EQ(Take(queues, 100), (Keys{164, 165, 166, 167, 168, 9}));
}

TEST(CallerQueues, KeepNothingOfCallersWhoHaveNothingHere) {
  CallerQueues queues;
  for (int i = 0; i < 3; ++i) {
    for (const std::string name : {"a", "b"}) queues.Add(Caller(name), Message(1, 1));
    EXPECT_EQ(queues.Take(8).size(), 2U);
    EXPECT_TRUE(queues.empty());
  }
  queues.Add(Caller("a"), {});
  EXPECT_TRUE(queues.empty());
}

TEST(Callers, AreTheSameByName) {
  EXPECT_EQ(Caller("ipv4:10.0.0.1:5"), Caller("ipv4:10.0.0.1:5"));
  EXPECT_NE(Caller("ipv4:10.0.0.1:5"), Caller("ipv4:10.0.0.1:6"));
  EXPECT_EQ(Caller().name(), "the server");
  EXPECT_EQ(Caller(std::string(1000, 'x')).name(), std::string(Caller::kMostCharacters, 'x'));
}

}  // namespace
}  // namespace slotwise
