#include "server/rpc/reply_sender.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

namespace slotwise {
namespace {

constexpr std::size_t kLarge = ReplySender::kLeastBytes;

TEST(ReplySender, SendsASmallReplyAtOnce) {
  ReplySender sender(1);
  std::thread::id where;
  sender.Send(kLarge - 1, [&] { where = std::this_thread::get_id(); });
  EXPECT_EQ(where, std::this_thread::get_id());
}

TEST(ReplySender, SendsALargeReplyElsewhere) {
  ReplySender sender(1);
  std::promise<std::thread::id> where;
  sender.Send(kLarge, [&] { where.set_value(std::this_thread::get_id()); });
  EXPECT_NE(where.get_future().get(), std::this_thread::get_id());
}

TEST(ReplySender, SendsLargeRepliesInTheirOrderAndAllBeforeItEnds) {
  std::vector<int> sent;
  {
    ReplySender sender(1);
    std::promise<void> all_given;
    sender.Send(kLarge, [&, given = all_given.get_future().share()] { given.wait(); });
    for (int i = 0; i < 100; ++i) sender.Send(kLarge, [&sent, i] { sent.push_back(i); });
    all_given.set_value();
  }
  ASSERT_EQ(sent.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(sent[static_cast<std::size_t>(i)], i);
}

// Whatever its thread is about as a reply comes, the reply is sent.
TEST(ReplySender, MissesNone) {
  ReplySender sender(1);
  for (int i = 0; i < 2000; ++i) {
    std::promise<void> sent;
    sender.Send(kLarge, [&] { sent.set_value(); });
    ASSERT_EQ(sent.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready) << i;
  }
}

// Each of the threads waits for the others: so they all work at once.
TEST(ReplySender, SendsAsManyAtOnceAsItHasThreads) {
  constexpr int kThreads = 3;
  std::latch all_there(kThreads);
  std::atomic<int> sent = 0;
  {
    ReplySender sender(kThreads);
    for (int i = 0; i < kThreads; ++i) {
      sender.Send(kLarge, [&] {
        all_there.arrive_and_wait();
        ++sent;
      });
    }
  }
  EXPECT_EQ(sent, kThreads);
}

TEST(ReplySender, LetsGoOfWhatItSent) {
  ReplySender sender(1);
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = held;
  std::promise<void> next;
  sender.Send(kLarge, [held = std::move(held)] {});
  sender.Send(kLarge, [&] { next.set_value(); });
  next.get_future().wait();
  EXPECT_TRUE(watch.expired());
}

}  // namespace
}  // namespace slotwise
