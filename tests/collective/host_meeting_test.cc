// Tests meetings of ranks that are threads of one process, so their shared memory is ordinary memory.
#include "server/collective/host_meeting.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <future>
#include <new>
#include <random>
#include <thread>
#include <vector>

namespace slotwise {
namespace {

using std::chrono::microseconds;
constexpr std::chrono::seconds kPatience{60};
constexpr std::chrono::hours kForever{24};  // a test that waits so long is ended by CTest

// Memory for ranks to meet in.
class Room {
 public:
  explicit Room(int ranks)
      : ranks_(ranks), bytes_(HostMeeting::BytesFor(ranks)), memory_(new(kAlign) std::byte[bytes_]()) {}
  ~Room() { ::operator delete[](memory_, kAlign); }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  HostMeeting::Options OptionsOf(int rank) const { return {.rank = rank, .ranks = ranks_}; }
  std::byte* memory() const { return memory_; }

  // Calls work(rank, its meeting), each rank on a thread of its own. `change` may change a rank's options.
  void Run(const std::function<void(int, HostMeeting&)>& work,
           const std::function<void(HostMeeting::Options&)>& change = {}) const {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks_; ++rank) {
      threads.emplace_back([&, rank] {
        HostMeeting::Options options = OptionsOf(rank);
        if (change) change(options);
        HostMeeting meeting(memory_, options);
        work(rank, meeting);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  static constexpr std::align_val_t kAlign{64};
  const int ranks_;
  const std::size_t bytes_;
  std::byte* const memory_;
};

std::uint64_t NumberOf(const std::byte* bytes) {
  std::uint64_t number = 0;
  std::memcpy(&number, bytes, sizeof(number));
  return number;
}

void Bring(HostMeeting& meeting, std::uint64_t number) {
  std::memcpy(meeting.Mine(), &number, sizeof(number));
}

class AMeeting : public testing::TestWithParam<microseconds> {};

INSTANTIATE_TEST_SUITE_P(OfRanksThatSpin, AMeeting, testing::Values(microseconds(0), microseconds(50)),
                         [](const auto& test) { return "For" + std::to_string(test.param.count()) + "Us"; });

TEST_P(AMeeting, BringsEveryoneWhatTheOthersBrought) {
  constexpr std::uint64_t kSeed = 20261123;
  RecordProperty("seed", std::to_string(kSeed));
  for (const int ranks : {1, 2, 3, 5}) {
    const Room room(ranks);
    room.Run(
        [&](int rank, HostMeeting& meeting) {
          std::mt19937_64 random(kSeed);  // the same on every rank
          for (std::uint64_t m = 1; m <= 2000; ++m) {
            const std::uint64_t last = random() % (HostMeeting::kMostBytes / sizeof(m)) * sizeof(m);
            const bool is_late =
                random() % 7 == 0 && random() % static_cast<unsigned>(ranks) == static_cast<unsigned>(rank);
            if (is_late) std::this_thread::yield();
            const std::uint64_t mine = 1000 * m + static_cast<std::uint64_t>(rank);
            std::memcpy(meeting.Mine() + last, &mine, sizeof(mine));
            Bring(meeting, mine);
            meeting.Meet();
            for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r) {
              ASSERT_EQ(NumberOf(meeting.Of(r)), 1000 * m + r) << "seed " << kSeed << ", meeting " << m;
              ASSERT_EQ(NumberOf(meeting.Of(r) + last), 1000 * m + r)
                  << "seed " << kSeed << ", meeting " << m;
            }
          }
        },
        [](HostMeeting::Options& options) { options.spin = GetParam(); });
  }
}

TEST(HostMeetingTest, WhatWasBroughtStaysWhileOthersPrepareTheNextMeeting) {
  const Room room(2);
  std::promise<void> prepared;
  room.Run([&](int rank, HostMeeting& meeting) {
    Bring(meeting, 7);
    meeting.Meet();
    if (rank == 1) {
      Bring(meeting, 8);
      prepared.set_value();
    } else {
      ASSERT_EQ(prepared.get_future().wait_for(kPatience), std::future_status::ready);
      EXPECT_EQ(NumberOf(meeting.Of(1)), 7U);
      Bring(meeting, 8);
    }
    meeting.Meet();
    EXPECT_EQ(NumberOf(meeting.Of(0)), 8U);
    EXPECT_EQ(NumberOf(meeting.Of(1)), 8U);
  });
}

// A rank that waits for long sleeps, and `meanwhile` shows that it does.
TEST(HostMeetingTest, WhoSleepsGoesOnWithOtherThingsAndIsWoken) {
  const Room room(3);
  std::atomic<int> sleeps[3] = {};
  const auto began = std::chrono::steady_clock::now();
  room.Run(
      [&](int rank, HostMeeting& meeting) {
        for (int m = 0; m < 6; ++m) {
          const int late = m % 3;
          if (rank == late) {
            for (int other = 0; other < 3; ++other) {
              const int before = m;  // each sleeper adds one or more a meeting
              while (other != late && sleeps[other] <= before && !testing::Test::HasFailure()) {
                if (std::chrono::steady_clock::now() - began > kPatience) FAIL() << "a rank stays awake";
                std::this_thread::yield();
              }
            }
          }
          meeting.Meet();
          sleeps[rank] = m + 1;
        }
      },
      [&](HostMeeting::Options& options) {
        options.meanwhile = [&sleeps, rank = options.rank] { ++sleeps[rank]; };
      });
}

TEST(HostMeetingTest, GathersAsMuchAsEachRankUses) {
  const Room room(3);
  room.Run([](int rank, HostMeeting& meeting) {
    for (const std::size_t more : {0, 5, 2}) {
      std::vector<std::byte> mine(10, std::byte{static_cast<unsigned char>(rank + 1)});
      std::vector<std::byte> all(30, std::byte{99});
      meeting.AllGatherBegins(mine, static_cast<std::size_t>(rank) + more, all);
      for (std::size_t i = 0; i < all.size(); ++i) {
        const bool used = i % 10 < i / 10 + more;
        EXPECT_EQ(all[i], used ? std::byte{static_cast<unsigned char>(i / 10 + 1)} : std::byte{99}) << i;
      }
    }
  });
}

TEST(HostMeetingTest, SumsWrapAround) {
  const Room room(3);
  room.Run([](int rank, HostMeeting& meeting) {
    std::vector<std::uint64_t> values{static_cast<std::uint64_t>(rank), rank == 0 ? ~0ULL : 1};
    meeting.AllReduceSum(values);
    EXPECT_EQ(values, (std::vector<std::uint64_t>{3, 1}));
  });
}

TEST(HostMeetingTest, AWakeIsSeenByTheOthersAndIsOldAtTheNextWait) {
  const Room room(3);
  HostMeeting waker(room.memory(), room.OptionsOf(0));
  HostMeeting second(room.memory(), room.OptionsOf(1));
  HostMeeting third(room.memory(), room.OptionsOf(2));
  const std::uint32_t rung = third.bell().rung();
  EXPECT_FALSE(second.PollWake(5));
  waker.Wake(5);
  EXPECT_TRUE(second.PollWake(5));
  EXPECT_TRUE(third.PollWake(5));
  EXPECT_FALSE(waker.PollWake(5)) << "no other rank woke it";
  EXPECT_FALSE(third.PollWake(6));
  EXPECT_NE(third.bell().rung(), rung);
}

TEST(BellTest, ARingBeforeTheWaitEndsIt) {
  Bell::Words words{};
  Bell bell(words);
  const std::uint32_t seen = bell.rung();
  bell.Ring();
  bell.Await(seen, kForever);
}

TEST(BellTest, WithoutARingAWaitEndsInTime) {
  Bell::Words words{};
  Bell bell(words);
  const auto began = std::chrono::steady_clock::now();
  bell.Await(bell.rung(), microseconds(2000));
  EXPECT_GE(std::chrono::steady_clock::now() - began, microseconds(2000));
  EXPECT_EQ(words.waits, 0U);
}

TEST(BellTest, RingsEndTheWaitsOfAThreadThatSleeps) {
  Bell::Words words{};
  Bell bell(words);
  std::atomic<int> heard = 0;
  std::thread waits([&] {
    for (int i = 0; i < 200; ++i) {
      bell.Await(static_cast<std::uint32_t>(i), kForever);
      heard = i + 1;
    }
  });
  for (int i = 0; i < 200; ++i) {
    // Every second ring meets a thread that is about to sleep, or does.
    while (i % 2 == 0 && std::atomic_ref(words.waits).load() == 0) std::this_thread::yield();
    bell.Ring();
    while (heard <= i) std::this_thread::yield();
  }
  waits.join();
}

}  // namespace
}  // namespace slotwise
