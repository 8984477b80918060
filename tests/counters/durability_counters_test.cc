// Tests a rank's counts of its journal and of checkpoints.
#include "server/counters/durability_counters.h"

#include <gtest/gtest.h>

#include <chrono>

namespace slotwise {
namespace {

using std::chrono::seconds;

TEST(CheckpointCountersTest, AreOffUntilThereIsAFolder) {
  CheckpointCounters counters;
  EXPECT_FALSE(counters.on());
  counters.Begin({}, {});
  EXPECT_TRUE(counters.on());
}

TEST(CheckpointCountersTest, TheStateOfNowHasNoAge) {
  const CheckpointCounters::SteadyTime start{seconds(1000)};
  CheckpointCounters counters;
  counters.Begin({}, start);
  EXPECT_EQ(counters.Read(start + seconds(50)).age, seconds(0));
  counters.NoteChanged(true);
  EXPECT_EQ(counters.Read(start + seconds(60)).age, seconds(60));
  EXPECT_EQ(counters.Read(start - seconds(1)).age, seconds(0)) << "a reading that began before";
}

// A server that has just started goes by the checkpoint that it has found.
TEST(CheckpointCountersTest, WhatAStartHasFoundHasItsOwnAge) {
  const CheckpointCounters::SteadyTime start{seconds(1000)};
  CheckpointCounters counters;
  counters.Begin({.bytes = 7, .rows = 8}, start - seconds(138));
  counters.NoteChanged(true);
  const CheckpointStats stats = counters.Read(start + seconds(2));
  EXPECT_EQ(stats.age, seconds(140));
  EXPECT_EQ(stats.newest_bytes, 7U);
  EXPECT_EQ(stats.newest_rows, 8U);
  EXPECT_EQ(stats.written, 0U);
}

// What changes while a checkpoint is written is as old as the round that began it.
TEST(CheckpointCountersTest, AgeCountsFromTheRoundThatBeganIt) {
  const CheckpointCounters::SteadyTime start{seconds(1000)};
  CheckpointCounters counters;
  counters.Begin({}, start);
  counters.NoteChanged(true);
  counters.NoteBegun(start + seconds(10));
  EXPECT_TRUE(counters.Read(start).under_way);
  EXPECT_EQ(counters.Read(start + seconds(11)).age, seconds(11)) << "it does not exist yet";
  counters.CountWritten({.bytes = 5, .rows = 6}, start + seconds(14));
  const CheckpointStats stats = counters.Read(start + seconds(15));
  EXPECT_EQ(stats.age, seconds(5));
  EXPECT_EQ(stats.written, 1U);
  EXPECT_EQ(stats.newest_bytes, 5U);
  EXPECT_EQ(stats.newest_rows, 6U);
  EXPECT_EQ(stats.durations.count(), 1U);
  EXPECT_EQ(stats.durations.sum_ns, 4'000'000'000U);
  EXPECT_TRUE(stats.under_way) << "it is read back";
  counters.NoteEnded();
  EXPECT_FALSE(counters.Read(start).under_way);
}

TEST(CheckpointCountersTest, WhatFailsLeavesTheNewestOneAsItWas) {
  const CheckpointCounters::SteadyTime start{seconds(1000)};
  CheckpointCounters counters;
  counters.Begin({}, start);
  counters.NoteChanged(true);
  counters.NoteBegun(start + seconds(10));
  counters.CountFailed();
  counters.CountUnreadable();
  const CheckpointStats stats = counters.Read(start + seconds(20));
  EXPECT_EQ(stats.failed, 1U);
  EXPECT_EQ(stats.unreadable, 1U);
  EXPECT_EQ(stats.written, 0U);
  EXPECT_FALSE(stats.under_way);
  EXPECT_EQ(stats.age, seconds(20));
  EXPECT_EQ(stats.durations.count(), 0U);
}

TEST(JournalCountersTest, CountsBytesAndSyncs) {
  JournalCounters counters;
  counters.NoteAppended(7);
  counters.CountSync(100, std::chrono::milliseconds(2));
  counters.CountSync(50, std::chrono::milliseconds(3));
  JournalStats stats{.queued_bytes = 4, .durable_round = 6, .failed = true, .syncs = {}};
  counters.Read(stats);
  EXPECT_EQ(stats.written_bytes, 150U);
  EXPECT_EQ(stats.appended_round, 7U);
  EXPECT_EQ(stats.syncs.count(), 2U);
  EXPECT_EQ(stats.syncs.sum_ns, 5'000'000U);
  EXPECT_EQ(stats.queued_bytes, 4U);
  EXPECT_EQ(stats.durable_round, 6U);
  EXPECT_TRUE(stats.failed);
}

}  // namespace
}  // namespace slotwise
