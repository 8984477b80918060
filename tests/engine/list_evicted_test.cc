// A server says which keys of a table were evicted or have expired, by round, on any number of ranks: those
// that have disappeared and no others. The ranks are those that mpirun starts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "server/engine/evicted_log.h"
#include "tests/engine/running_engine.h"

namespace slotwise::test {
namespace {

using Which = RemoveRequest::Which;
using Keys = std::vector<std::uint64_t>;

TableOptions Options(const char* name, std::uint64_t max_rows) {
  TableOptions options;
  options.name = TableName(name);
  options.dim = 4;
  options.optimizer.learning_rate = 1;
  options.max_rows = max_rows;
  return options;
}

TableOptions Evicting(const char* name, std::uint64_t max_rows, float to = 0.5F) {
  TableOptions options = Options(name, max_rows);
  options.eviction = {.score = ScoreKind::kStep, .at = 1.0F, .to = to};
  return options;
}

// All pages of an answer.
struct Answer {
  std::map<std::uint64_t, Keys> rounds;  // ascending keys
  std::set<Removal> why;
  std::uint64_t complete_after = 0;
  bool gap = false;
  std::uint64_t through = 0;
  std::size_t pages = 0;

  Keys All() const {
    Keys all;
    for (const auto& [round, keys] : rounds) all.insert(all.end(), keys.begin(), keys.end());
    std::ranges::sort(all);
    return all;
  }
};

class ListEvicted : public testing::Test {
 protected:
  void Start(std::uint64_t max_evicted_bytes = std::uint64_t{16} << 20) {
    EngineOptions options;
    options.max_evicted_bytes = max_evicted_bytes;
    ranks_ = std::make_unique<RunningEngine>(place_, Ranks(), options);
  }

  static std::unique_ptr<Collective> Ranks() {
    return LaunchedByMpi() ? MakeMpiCollective() : MakeSoloCollective();
  }
  // Every rank brings a part of these keys. No rank goes on before all have been answered.
  Status Push(TableId table, const Keys& keys) {
    const StepId step{.session = 7,
                      .number = ++number_,
                      .part = static_cast<std::uint32_t>(Value(tests_->rank())),
                      .parts = static_cast<std::uint32_t>(tests_->size())};
    const Status pushed =
        ranks_->Push(table, step, UnitBags(keys), std::vector<float>(keys.size() * 4, 1.0F)).status();
    Wait();
    return pushed;
  }
  // Rank 0 alone asks, so that one round serves it.
  void OnRank0(const std::function<void()>& ask) {
    if (Value(tests_->rank()) == 0) ask();
    Wait();
  }
  void Wait() { AllGatherValues(*tests_, std::uint64_t{0}); }
  // Of all ranks.
  std::set<std::uint64_t> KeysOf(TableId table) {
    const std::vector<Key> mine = ranks_->ListKeys(table);
    const std::string bytes(reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(Key));
    std::set<std::uint64_t> all;
    for (const std::string& of_rank : AllGatherTexts(*tests_, bytes)) {
      for (std::size_t at = 0; at < of_rank.size(); at += sizeof(std::uint64_t)) {
        std::uint64_t key = 0;
        std::memcpy(&key, &of_rank[at], sizeof(key));
        all.insert(key);
      }
    }
    return all;
  }
  // Each rank asks, and gets the same.
  Answer After(TableId table, std::uint64_t round) {
    Answer answer;
    EvictedPage page = ranks_->ListEvicted(table, round);
    answer.complete_after = page.complete_after;
    answer.gap = page.gap;
    answer.through = page.through_round;
    for (answer.pages = 1;; ++answer.pages) {
      std::size_t count = 0;
      for (const EvictedPage::OfRound& gone : page.rounds) {
        count += gone.keys.size();
        for (const Key key : gone.keys) answer.rounds[gone.round].push_back(Value(key));
        answer.why.insert(gone.why);
      }
      EXPECT_LE(count, operations::ListEvicted::kMostKeys);
      if (!page.more) break;
      page = ranks_->ListEvicted(table, page.next_after_round, page.next_keys_seen, answer.through);
      EXPECT_FALSE(page.gap);
    }
    for (auto& [number, keys] : answer.rounds) std::ranges::sort(keys);
    Wait();
    return answer;
  }
  // Returns what has disappeared since `before`.
  Keys Gone(TableId table, const std::set<std::uint64_t>& before) {
    const std::set<std::uint64_t> now = KeysOf(table);
    Keys gone;
    std::ranges::set_difference(before, now, std::back_inserter(gone));
    return gone;
  }

  const std::unique_ptr<Collective> tests_ = Ranks();  // not the engine's
  const EnginePlace place_{Ranks(), MakeCpuDevice(1)};
  std::unique_ptr<RunningEngine> ranks_;
  std::uint64_t number_ = 0;
};

TEST_F(ListEvicted, SaysWhichKeysHaveDisappeared) {
  Start();
  constexpr std::uint64_t kSeed = 20261129;
  std::mt19937_64 random(kSeed);
  const TableId table = ranks_->Create(Evicting("ads", 100));
  const TableId other = ranks_->Create(Evicting("other", 100));
  std::uint64_t seen = 0;
  Keys all;
  for (std::uint64_t round = 0; round < 60; ++round) {
    const std::set<std::uint64_t> before = KeysOf(table);
    Keys keys(1 + random() % 40);
    for (std::uint64_t& key : keys) key = round + random() % 150;
    const std::uint64_t what = random() % 8;
    ASSERT_TRUE(Push(other, keys).ok());
    if (what == 0) {
      OnRank0([&] { EXPECT_TRUE(ranks_->Remove(table, Which::kAllBut, 30).ok()); });
    } else if (what == 1) {
      OnRank0([&] { EXPECT_TRUE(ranks_->Lookup(table, UnitBags(keys)).ok()); });
    } else {
      ASSERT_TRUE(Push(table, keys).ok());
    }
    const Keys gone = Gone(table, before);
    const Answer answer = After(table, seen);
    EXPECT_EQ(answer.All(), gone) << round;
    EXPECT_LE(answer.rounds.size(), 1U);
    EXPECT_FALSE(answer.gap);
    EXPECT_EQ(answer.complete_after, seen);
    if (!gone.empty()) {
      EXPECT_EQ(answer.why, std::set{what == 0 ? Removal::kAsked : Removal::kFull});
    }
    seen = answer.through;
    all.insert(all.end(), gone.begin(), gone.end());
  }
  EXPECT_GT(all.size(), 300U);
  std::ranges::sort(all);
  EXPECT_EQ(After(table, 0).All(), all) << "all rounds at once";
}

TEST_F(ListEvicted, SaysWhichKeysHaveExpired) {
  Start();
  TableOptions options = Options("ttl", 10'000);
  options.ttl_steps = 16;  // swept every step
  const TableId table = ranks_->Create(options);
  Keys expected;
  for (std::uint64_t step = 1; step <= 40; ++step) {
    ASSERT_TRUE(Push(table, {step, 1000 + step}).ok());
    if (step > 16) expected.insert(expected.end(), {step - 16, 1000 + step - 16});
  }
  std::ranges::sort(expected);
  const Answer answer = After(table, 0);
  EXPECT_EQ(answer.All(), expected);
  EXPECT_EQ(answer.rounds.size(), 24U);
  EXPECT_EQ(answer.why, std::set{Removal::kExpired});
}

TEST_F(ListEvicted, ListsNoErasedKeys) {
  Start();
  const TableId table = ranks_->Create(Evicting("ads", 100));
  ASSERT_TRUE(Push(table, {1, 2, 3}).ok());
  ranks_->Erase(table, {1, 2});
  Wait();
  EXPECT_TRUE(After(table, 0).rounds.empty());
}

// A round may remove more keys than a page has, and ranks have different numbers of them.
TEST_F(ListEvicted, GivesManyKeysInPages) {
  Start();
  const TableId table = ranks_->Create(Evicting("ads", 100'000));
  constexpr std::uint64_t kMany = 20'000;
  Keys keys;
  for (std::uint64_t key = 0; key < kMany; ++key) keys.push_back(key);
  for (int times = 0; times < 2; ++times) {
    ASSERT_TRUE(Push(table, keys).ok());
    OnRank0([&] { EXPECT_TRUE(ranks_->Remove(table, Which::kAllBut, times == 0 ? 0 : 3).ok()); });
  }
  const Answer answer = After(table, 0);
  ASSERT_EQ(answer.rounds.size(), 2U);
  EXPECT_EQ(answer.rounds.begin()->second, keys);
  EXPECT_EQ(answer.rounds.rbegin()->second.size(), kMany - 3);
  EXPECT_GE(answer.pages, 2 * kMany / operations::ListEvicted::kMostKeys);
  EXPECT_LE(answer.pages, 12U);
  const std::uint64_t first = answer.rounds.begin()->first;
  EXPECT_EQ(After(table, first).All(), answer.rounds.rbegin()->second);
  const EvictedPage bounded = ranks_->ListEvicted(table, 0, 0, first);
  EXPECT_EQ(bounded.through_round, first);
  for (const EvictedPage::OfRound& gone : bounded.rounds) EXPECT_EQ(gone.round, first);
  Wait();
}

// Ranks forget different rounds, because they have different keys.
TEST_F(ListEvicted, SaysAfterWhichRoundItHasAllKeys) {
  constexpr std::uint64_t kMost = 4 * EvictedLog::kBytesOfEntry;
  Start(kMost);
  const TableId table = ranks_->Create(Evicting("ads", 8));
  std::map<std::uint64_t, Keys> rounds;
  std::uint64_t seen = 0;
  std::uint64_t complete_after = 0;
  for (std::uint64_t key = 0; key < 200; key += 4) {
    ASSERT_TRUE(Push(table, {key, key + 1, key + 2, key + 3}).ok());
    const Answer newest = After(table, seen);
    EXPECT_FALSE(newest.gap) << "one round fits";
    rounds.insert(newest.rounds.begin(), newest.rounds.end());
    seen = newest.through;
    const Answer answer = After(table, 0);
    EXPECT_EQ(answer.gap, answer.complete_after > 0);
    EXPECT_GE(answer.complete_after, complete_after);
    complete_after = answer.complete_after;
    std::map<std::uint64_t, Keys> kept = rounds;
    std::erase_if(kept, [&](const auto& round) { return round.first <= complete_after; });
    EXPECT_EQ(answer.rounds, kept) << key;
    if (rounds.empty()) continue;
    EXPECT_GE(kept.size(), 1U);
    EXPECT_LT(kept.size(), 20U);
  }
  ASSERT_GE(rounds.size(), 20U);
  EXPECT_GE(complete_after, rounds.begin()->first);
  EXPECT_TRUE(After(table, complete_after - 1).gap);
  EXPECT_FALSE(After(table, complete_after).gap);
}

TEST_F(ListEvicted, SaysThatARoundRemovedTooManyKeysToList) {
  Start(2048);
  const TableId table = ranks_->Create(Evicting("ads", 10'000));
  const TableId other = ranks_->Create(Evicting("other", 4));
  ASSERT_TRUE(Push(other, {1, 2, 3, 4}).ok());
  ASSERT_TRUE(Push(other, {5}).ok());
  Keys keys;
  for (std::uint64_t key = 0; key < 5000; ++key) keys.push_back(key);
  ASSERT_TRUE(Push(table, keys).ok());
  OnRank0([&] { EXPECT_TRUE(ranks_->Remove(table, Which::kAllBut, 10).ok()); });
  const Answer answer = After(table, 0);
  EXPECT_TRUE(answer.gap);
  EXPECT_TRUE(answer.rounds.empty());
  EXPECT_GT(answer.complete_after, 0U);
  EXPECT_LT(answer.complete_after, answer.through);
  EXPECT_FALSE(After(table, answer.complete_after).gap);
  EXPECT_FALSE(After(other, 0).gap);
  EXPECT_EQ(After(other, 0).All().size(), 3U);
}

TEST_F(ListEvicted, TellsATableFromAnEarlierOneOfItsName) {
  Start();
  const TableId table = ranks_->Create(Evicting("ads", 4));
  ASSERT_TRUE(Push(table, {1, 2, 3, 4}).ok());
  ASSERT_TRUE(Push(table, {5}).ok());
  const Answer before = After(table, 0);
  EXPECT_EQ(before.All().size(), 3U);
  OnRank0([&] { EXPECT_TRUE(ranks_->Drop(table).ok()); });
  const TableId again = ranks_->Create(Evicting("ads", 4));
  Wait();
  ASSERT_TRUE(Push(again, {11, 12, 13, 14}).ok());
  ASSERT_TRUE(Push(again, {15}).ok());
  const Answer all = After(again, 0);
  EXPECT_FALSE(all.gap) << "nothing went before the table was made";
  EXPECT_EQ(all.All().size(), 3U);
  EXPECT_GT(all.All().front(), 10U);
  const Answer since = After(again, before.through);
  EXPECT_TRUE(since.gap) << "the caller has seen another table";
  EXPECT_GT(since.complete_after, before.through);
  EXPECT_EQ(since.rounds, all.rounds);
}

TEST_F(ListEvicted, TakesARoundThatHasNotBeenForOneOfAnEarlierServer) {
  Start();
  const TableId table = ranks_->Create(Evicting("ads", 4));
  ASSERT_TRUE(Push(table, {1, 2, 3, 4}).ok());
  ASSERT_TRUE(Push(table, {5}).ok());
  for (const std::uint64_t after : {std::uint64_t{1'000'000}, ListEvictedRequest::kOfEarlierStart}) {
    const Answer answer = After(table, after);
    EXPECT_TRUE(answer.gap);
    EXPECT_LT(answer.complete_after, answer.through);
    EXPECT_EQ(answer.All().size(), 3U);
  }
}

// Candidates have no rows: their counts go without a word.
TEST_F(ListEvicted, ListsNoKeysThatHadNoRow) {
  Start();
  TableOptions options = Evicting("ads", 1000);
  options.admission.kind = AdmissionKind::kFrequency;
  options.admission.threshold = 100;
  options.admission.max_keys = 20;
  const TableId table = ranks_->Create(options);
  for (std::uint64_t key = 0; key < 100; key += 10)
    ASSERT_TRUE(Push(table, {key, key + 1, key + 2, key + 3, key + 4}).ok());
  EXPECT_LE(ranks_->Summarize(table).candidates, 20U);
  EXPECT_TRUE(After(table, 0).rounds.empty());
  EXPECT_FALSE(After(table, 0).gap);
}

}  // namespace
}  // namespace slotwise::test
