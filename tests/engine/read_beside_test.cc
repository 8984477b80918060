// Items that another thread reads come in order, and an error on either side ends both.
#include "server/engine/read_beside.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

namespace slotwise {
namespace {

constexpr std::size_t kPieces = 100;

// Gives the sink `kPieces` pieces: each third erases, the others have two rows of one float.
Status ReadAll(const RowSink& sink) {
  for (std::uint64_t i = 0; i < kPieces; ++i) {
    std::vector<Key> keys{Key{i}, Key{i + 1}};
    std::vector<float> records{static_cast<float>(i), -1};
    if (Status status = i % 3 == 0 ? sink.erase(keys) : sink.rows(keys, records); !status.ok()) return status;
  }
  return {};
}

struct Used {
  std::vector<std::uint64_t> first_keys;
  std::thread::id thread;
  std::size_t fails_at = kPieces;

  Status Take(std::span<const Key> keys) {
    thread = std::this_thread::get_id();
    if (first_keys.size() == fails_at) return ResourceExhausted("no room");
    EXPECT_EQ(keys.size(), 2);
    first_keys.push_back(Value(keys[0]));
    return {};
  }
  RowSink Sink() {
    return {.rows =
                [this](std::span<const Key> keys, std::span<const float> records) {
                  EXPECT_NE(Value(keys[0]) % 3, 0);
                  EXPECT_EQ(records.size(), 2);
                  EXPECT_EQ(records[0], static_cast<float>(Value(keys[0])));
                  return Take(keys);
                },
            .erase =
                [this](std::span<const Key> keys) {
                  EXPECT_EQ(Value(keys[0]) % 3, 0);
                  return Take(keys);
                }};
  }
};

TEST(ReadBesideTest, WhatIsReadIsUsedInItsOrderOnTheCallersThread) {
  Used used;
  std::thread::id reading;
  const auto read = [&](const RowSink& sink) {
    reading = std::this_thread::get_id();
    return ReadAll(sink);
  };
  EXPECT_TRUE(ReadBeside(SystemThreads(), read, used.Sink()).ok());
  ASSERT_EQ(used.first_keys.size(), kPieces);
  for (std::uint64_t i = 0; i < kPieces; ++i) EXPECT_EQ(used.first_keys[i], i);
  EXPECT_EQ(used.thread, std::this_thread::get_id());
  EXPECT_NE(reading, used.thread);
}

TEST(ReadBesideTest, AnErrorOfWhoReadsComesBehindWhatWasReadBefore) {
  Used used;
  const auto read = [](const RowSink& sink) {
    EXPECT_TRUE(ReadAll(sink).ok());
    return FailedPrecondition("damaged");
  };
  EXPECT_EQ(ReadBeside(SystemThreads(), read, used.Sink()).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(used.first_keys.size(), kPieces);
}

TEST(ReadBesideTest, AnErrorOfWhoUsesEndsTheReading) {
  Used used{.first_keys = {}, .thread = {}, .fails_at = 7};
  Status read_ended;
  const auto read = [&](const RowSink& sink) { return read_ended = ReadAll(sink); };
  EXPECT_EQ(ReadBeside(SystemThreads(), read, used.Sink()).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(used.first_keys.size(), 7);
  EXPECT_EQ(read_ended.code(), StatusCode::kCancelled);
}

TEST(ReadBesideTest, ExceptionsOfEitherSideReachTheCaller) {
  Used used;
  const auto no_memory = [](const RowSink&) -> Status { throw std::bad_alloc(); };
  EXPECT_THROW((void)ReadBeside(SystemThreads(), no_memory, used.Sink()), std::bad_alloc);
  const RowSink broken{.rows = [](std::span<const Key>, std::span<const float>) -> Status {
                         throw std::runtime_error("gone");
                       },
                       .erase = [](std::span<const Key>) -> Status { throw std::runtime_error("gone"); }};
  EXPECT_THROW((void)ReadBeside(SystemThreads(), ReadAll, broken), std::runtime_error);
}

// The system, when it gives no more threads.
class NoThreads final : public Threads {
 public:
  std::unique_ptr<Thread> Begin(std::function<void()> /*body*/) override {
    throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
  }
  void Wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
            const std::function<bool()>& holds) override {
    SystemThreads().Wait(changed, lock, holds);
  }
  std::optional<std::chrono::milliseconds> WaitFor(std::condition_variable& changed,
                                                   std::unique_lock<std::mutex>& lock,
                                                   const std::function<bool()>& holds,
                                                   std::chrono::milliseconds longest) override {
    return SystemThreads().WaitFor(changed, lock, holds, longest);
  }
};

TEST(ReadBesideTest, IsRefusedWhereThereAreNoMoreThreads) {
  NoThreads threads;
  Used used;
  const Status refused = ReadBeside(threads, ReadAll, used.Sink());
  EXPECT_EQ(refused, ResourceExhausted("the system gives this process no more threads (Resource temporarily "
                                       "unavailable)"));
  EXPECT_TRUE(used.first_keys.empty());
}

TEST(ReadBesideTest, WhoReadsIsAtMostTwoPiecesAhead) {
  std::atomic<std::size_t> put = 0;
  std::size_t used = 0;
  const auto read = [&](const RowSink& sink) {
    while (put < kPieces) {
      std::vector<Key> keys{Key{put.load()}};
      std::vector<float> records{1.0F};
      if (Status status = sink.rows(keys, records); !status.ok()) return status;
      ++put;
    }
    return Status();
  };
  const RowSink sink{.rows =
                         [&](std::span<const Key> keys, std::span<const float>) {
                           EXPECT_EQ(Value(keys[0]), used);
                           EXPECT_LE(put, used + 2);  // with the one that is being used
                           ++used;
                           return Status();
                         },
                     .erase = [](std::span<const Key>) { return Status(); }};
  EXPECT_TRUE(ReadBeside(SystemThreads(), read, sink).ok());
  EXPECT_EQ(used, kPieces);
}

}  // namespace
}  // namespace slotwise
