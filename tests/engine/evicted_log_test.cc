// The log of evicted keys has each table's keys by round, and forgets those of the oldest rounds first.
#include "server/engine/evicted_log.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <tuple>
#include <vector>

namespace slotwise {
namespace {

constexpr TableId kAds{1};
constexpr TableId kUsers{2};

std::vector<Key> KeysFrom(std::uint64_t first, std::size_t count) {
  std::vector<Key> keys;
  keys.reserve(count);
  for (std::uint64_t key = first; key < first + count; ++key) keys.push_back(Key{key});
  return keys;
}

// Appends a round that removed these keys of a table.
void Append(EvictedLog& log, std::uint64_t round, TableId table, std::vector<Key> keys,
            Removal why = Removal::kFull) {
  RoundOutcome outcome;
  outcome.removed.push_back({table, why, true, std::move(keys)});
  log.Append(round, outcome);
}

// Returns the log's keys of later rounds, with the rounds, `page` at a time.
std::vector<std::pair<std::uint64_t, std::uint64_t>> After(const EvictedLog& log, TableId table,
                                                           std::uint64_t round, std::size_t page = 1000) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> all;
  EvictedLog::Place place{round + 1, 0};
  while (place != EvictedLog::kEnd) {
    std::vector<EvictedLog::Entry> entries;
    place = log.List(table, place, page, entries);
    EXPECT_LE(entries.size(), page);
    for (const auto& entry : entries) all.emplace_back(entry.round, Value(entry.key));
  }
  return all;
}

TEST(EvictedLog, HasTheKeysOfEachTableByRound) {
  EvictedLog log(1 << 20);
  log.Begin(kAds, 1, false);
  log.Begin(kUsers, 2, false);
  Append(log, 5, kAds, KeysFrom(50, 2));
  Append(log, 6, kUsers, KeysFrom(60, 1));
  Append(log, 8, kAds, KeysFrom(80, 1), Removal::kExpired);
  using Keys = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
  EXPECT_EQ(After(log, kAds, 0), (Keys{{5, 50}, {5, 51}, {8, 80}}));
  EXPECT_EQ(After(log, kAds, 5), (Keys{{8, 80}}));
  EXPECT_EQ(After(log, kUsers, 0), (Keys{{6, 60}}));
  EXPECT_TRUE(After(log, kUsers, 6).empty());
  std::vector<EvictedLog::Entry> entries;
  EXPECT_EQ(log.List(kAds, {8, 0}, 9, entries), EvictedLog::kEnd);
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_EQ(static_cast<Removal>(entries[0].why), Removal::kExpired);
}

TEST(EvictedLog, GivesTheSameKeysInPagesOfAnySize) {
  EvictedLog log(1 << 20);
  log.Begin(kAds, 1, false);
  RoundOutcome twice;  // a round of lookups may evict twice
  twice.removed.push_back({kAds, Removal::kFull, true, KeysFrom(10, 3)});
  twice.removed.push_back({kUsers, Removal::kFull, true, KeysFrom(99, 1)});
  twice.removed.push_back({kAds, Removal::kFull, true, KeysFrom(20, 4)});
  log.Append(3, twice);
  Append(log, 4, kAds, KeysFrom(30, 2));
  const auto all = After(log, kAds, 0);
  EXPECT_EQ(all.size(), 9U);
  for (const std::size_t page : {1U, 2U, 3U, 4U, 7U, 8U, 9U})
    EXPECT_EQ(After(log, kAds, 0, page), all) << page;
}

TEST(EvictedLog, ForgetsTheOldestRoundsOfAllTablesFirst) {
  constexpr std::uint64_t kMost = 4 * (EvictedLog::kBytesOfEntry + 10 * sizeof(Key));
  EvictedLog log(kMost);
  log.Begin(kAds, 1, false);
  log.Begin(kUsers, 2, false);
  Append(log, 3, kUsers, KeysFrom(0, 10));
  for (std::uint64_t round = 4; round <= 7; ++round) Append(log, round, kAds, KeysFrom(round, 10));
  EXPECT_LE(log.bytes(), kMost);
  EXPECT_TRUE(After(log, kUsers, 0).empty());
  EXPECT_EQ(log.StartOf(kUsers).round, 3U);
  EXPECT_EQ(log.StartOf(kUsers).lacks, 1U);
  EXPECT_EQ(After(log, kAds, 0).size(), 40U) << "four rounds fit";
  EXPECT_EQ(log.StartOf(kAds).round, 1U);
  EXPECT_EQ(log.StartOf(kAds).lacks, 0U);
  Append(log, 8, kUsers, KeysFrom(8, 1));
  EXPECT_EQ(log.StartOf(kAds).round, 4U);
  EXPECT_EQ(After(log, kAds, 0).size(), 30U);
  EXPECT_EQ(After(log, kUsers, 0).size(), 1U);
}

// All of a round goes, also if it removed keys of several tables.
TEST(EvictedLog, ForgetsWholeRounds) {
  EvictedLog log(3 * (EvictedLog::kBytesOfEntry + 10 * sizeof(Key)));
  log.Begin(kAds, 1, false);
  log.Begin(kUsers, 1, false);
  RoundOutcome both;
  both.removed.push_back({kAds, Removal::kFull, true, KeysFrom(0, 10)});
  both.removed.push_back({kUsers, Removal::kFull, true, KeysFrom(0, 10)});
  log.Append(2, both);
  Append(log, 3, kAds, KeysFrom(10, 10));
  Append(log, 4, kAds, KeysFrom(20, 10));
  EXPECT_EQ(log.StartOf(kAds).round, 2U);
  EXPECT_EQ(log.StartOf(kUsers).round, 2U);
  EXPECT_TRUE(After(log, kUsers, 0).empty());
  EXPECT_EQ(After(log, kAds, 0).size(), 20U);
}

// Keys that were too many to list leave a gap in their table alone.
TEST(EvictedLog, SaysWhichRoundItCouldNotTake) {
  EvictedLog log(1 << 20);
  log.Begin(kAds, 1, false);
  log.Begin(kUsers, 1, false);
  Append(log, 2, kAds, KeysFrom(0, 10));
  Append(log, 3, kUsers, KeysFrom(0, 10));
  RoundOutcome outcome;
  outcome.most_keys = 5;
  EXPECT_NE(EvictedFrom(&outcome, kUsers, Removal::kFull, 3), nullptr);
  EXPECT_EQ(EvictedFrom(&outcome, kAds, Removal::kFull, 3), nullptr) << "of a round, over all tables";
  outcome.removed[0].keys = KeysFrom(50, 3);
  log.Append(4, outcome);
  EXPECT_EQ(log.StartOf(kAds).round, 4U);
  EXPECT_EQ(log.StartOf(kAds).lacks, 1U);
  EXPECT_TRUE(After(log, kAds, 0).empty());
  EXPECT_EQ(After(log, kUsers, 0).size(), 13U);
  EXPECT_EQ(log.StartOf(kUsers).lacks, 0U);
  outcome.Clear();
  EXPECT_NE(EvictedFrom(&outcome, kAds, Removal::kFull, 5), nullptr) << "the next round has room again";
}

TEST(EvictedLog, HasNoTableThatWasNotBegunOrIsForgotten) {
  EvictedLog log(1 << 20);
  log.Begin(kAds, 1, false);
  Append(log, 2, kAds, KeysFrom(0, 10));
  Append(log, 2, kUsers, KeysFrom(0, 10));
  Append(log, 3, kAds, KeysFrom(10, 1), Removal::kErased);
  EXPECT_TRUE(After(log, kUsers, 0).empty());
  EXPECT_EQ(After(log, kAds, 0).size(), 10U);
  log.Forget(kAds);
  EXPECT_EQ(log.bytes(), 0U);
  log.Begin(kAds, 7, true);
  EXPECT_TRUE(After(log, kAds, 0).empty());
  EXPECT_EQ(log.StartOf(kAds).round, 7U);
  EXPECT_EQ(log.StartOf(kAds).lacks, 1U);
}

}  // namespace
}  // namespace slotwise
