// A table that gets too full evicts rows: those that docs/semantics.md says and no others, on any number of
// ranks, between the ranks' agreement and the insertion. The ranks are those that mpirun starts.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <future>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/body/hash.h"
#include "server/engine/round_outcome.h"
#include "tests/engine/running_engine.h"
#include "tests/engine/set_clock.h"

namespace slotwise::test {
namespace {

TableOptions Evicting(const char* name, std::uint64_t max_rows, float at = 1.0F, float to = 0.95F) {
  TableOptions options;
  options.name = TableName(name);
  options.dim = 4;
  options.optimizer.learning_rate = 1;
  options.initializer = {1, 1, 0};
  options.max_rows = max_rows;
  options.eviction = {.score = ScoreKind::kStep, .at = at, .to = to};
  return options;
}

// Model knows which keys have rows, and with which scores, by the words of docs/semantics.md.
class Model {
 public:
  explicit Model(const TableOptions& options)
      : kind_(options.eviction.score),
        half_life_(options.eviction.half_life_steps),
        most_(Share(options, options.eviction.at)),
        least_(Share(options, options.eviction.to)) {}

  std::map<std::uint64_t, std::uint64_t> scores;  // by key, the step that touched the row last
  std::map<std::uint64_t, std::uint64_t> counts;  // by key, occurrences in pushes, halved
  std::uint64_t steps = 0;
  std::uint64_t evicted = 0;
  std::vector<std::uint64_t> evicted_ages;       // by a full table
  std::vector<std::uint64_t> last_evicted_ages;  // by its last eviction

  // Gives the keys rows. Returns false if the batch has to be refused.
  bool Insert(const std::vector<std::uint64_t>& keys) {
    const std::set<std::uint64_t> own(keys.begin(), keys.end());
    const auto added = static_cast<std::uint64_t>(
        std::ranges::count_if(own, [&](std::uint64_t key) { return !scores.contains(key); }));
    const std::uint64_t all = scores.size() + added;
    std::vector<std::array<std::uint64_t, 4>> places;  // count, step, tie, key
    if (added > 0 && all > most_) {
      for (const auto& [key, score] : scores) {
        if (!own.contains(key))
          places.push_back({Count(key), Step(score), body::Mix64(body::Mix64(key)), key});
      }
      std::ranges::sort(places);
      if (places.size() > all - least_) places.resize(all - least_);
      if (places.empty() || all - places.size() > most_) return false;
    }
    if (!places.empty()) last_evicted_ages.clear();
    for (const auto& place : places) {
      last_evicted_ages.push_back(AgeOf(scores.at(place[3])));
      scores.erase(place[3]);
      counts.erase(place[3]);
    }
    evicted += places.size();
    if (!places.empty())
      evicted_ages.insert(evicted_ages.end(), last_evicted_ages.begin(), last_evicted_ages.end());
    for (const std::uint64_t key : own) scores.try_emplace(key, steps + 1);
    return true;
  }
  // Each of `times` ranks brings the keys.
  bool Push(const std::vector<std::uint64_t>& keys, std::uint64_t times) {
    if (!Insert(keys)) return false;
    ++steps;
    if (half_life_ > 0 && steps % half_life_ == 0) {
      for (auto& [key, count] : counts) count /= 2;
    }
    for (const std::uint64_t key : keys) {
      scores[key] = steps;
      counts[key] += times;
    }
    return true;
  }

  std::vector<std::uint64_t> Keys() const {
    std::vector<std::uint64_t> keys;
    for (const auto& [key, score] : scores) keys.push_back(key);
    return keys;
  }

  // Return the ages, and the counts that order evictions, of the rows now.
  std::vector<std::uint64_t> Ages() const {
    std::vector<std::uint64_t> ages;
    for (const auto& [key, score] : scores) ages.push_back(AgeOf(score));
    return ages;
  }
  std::vector<std::uint64_t> Counts() const {
    std::vector<std::uint64_t> all;
    for (const auto& [key, score] : scores) {
      if (kind_ != ScoreKind::kStep) all.push_back(Count(key));
    }
    return all;
  }

 private:
  std::uint64_t AgeOf(std::uint64_t score) const { return score > steps ? 0 : steps - score; }
  static std::uint64_t Share(const TableOptions& options, float share) {
    const auto millionths = static_cast<std::uint64_t>(std::llround(1e6 * static_cast<double>(share)));
    return options.max_rows * millionths / 1'000'000;
  }

  // Return what orders a row at the next step.
  std::uint64_t Count(std::uint64_t key) const {
    if (kind_ == ScoreKind::kStep) return 0;
    const bool halves = half_life_ > 0 && (steps + 1) % half_life_ == 0;
    const auto count = counts.find(key);
    // A row that no push has touched counts once. It was made for step steps + 1 at the latest.
    if (count == counts.end()) return CountOfUntouched(scores.at(key));
    return halves ? count->second / 2 : count->second;
  }
  std::uint64_t CountOfUntouched(std::uint64_t made) const {
    return half_life_ > 0 && (steps + 1) / half_life_ > made / half_life_ ? 0 : 1;
  }
  std::uint64_t Step(std::uint64_t step) const { return kind_ == ScoreKind::kLfu ? 0 : step; }

  const ScoreKind kind_;
  const std::uint64_t half_life_;
  const std::uint64_t most_;
  const std::uint64_t least_;
};

class NoteOutcomes final : public EngineObserver {
 public:
  std::vector<Key> removed;  // on this rank

  void OnTaken(const Request& /*request*/, TicketNumber /*ticket*/) override {}
  void OnDecision(const EngineState& /*state*/, const Decision& /*decision*/) override {}
  bool wants_outcomes() const override { return true; }
  void OnOutcome(std::uint64_t /*round*/, const RoundOutcome& outcome) override {
    for (const RoundOutcome::Removed& of_table : outcome.removed)
      removed.insert(removed.end(), of_table.keys.begin(), of_table.keys.end());
  }
};

class Eviction : public testing::Test {
 protected:
  Eviction() {
    ranks_ = std::make_unique<RunningEngine>(place_, Ranks(), EngineOptions(), nullptr, &outcomes_, clock_);
  }

  static std::unique_ptr<Collective> Ranks() {
    return LaunchedByMpi() ? MakeMpiCollective() : MakeSoloCollective();
  }
  // Every rank brings a part of these keys, each of whose rows gets a gradient of 1 from each.
  std::future<Result<std::uint64_t>> Start(TableId table, StepId step,
                                           const std::vector<std::uint64_t>& keys) {
    const Collective& ranks = ranks_->collective();
    step.parts = static_cast<std::uint32_t>(ranks.size());
    step.part = static_cast<std::uint32_t>(Value(ranks.rank()));
    return ranks_->StartPush(table, step, UnitBags(keys), std::vector<float>(keys.size() * 4, 1.0F));
  }
  Status Push(TableId table, std::uint64_t number, const std::vector<std::uint64_t>& keys) {
    return Start(table, {.session = 7, .number = number}, keys).get().status();
  }
  // Of all ranks, ascending.
  std::vector<std::uint64_t> KeysOf(TableId table) {
    std::vector<std::uint64_t> all;
    for (const Key key : ranks_->ListKeys(table)) all.push_back(Value(key));
    return Ascending(std::move(all));
  }
  std::vector<std::uint64_t> Ascending(std::vector<std::uint64_t> mine) {
    std::array<std::uint64_t, kMost> all{};
    for (const std::uint64_t key : mine) ++all.at(key);
    tests_->AllReduceSum(all);
    std::vector<std::uint64_t> keys;
    for (std::uint64_t key = 0; key < kMost; ++key) keys.insert(keys.end(), all[key], key);
    return keys;
  }
  // Every rank looks the same keys up, in a round of its own or in one with others, before a rank goes on.
  Status LookupOfAll(TableId table, const std::vector<std::uint64_t>& keys) {
    const Status mine = ranks_->Lookup(table, UnitBags(keys)).status();
    Ascending({});
    return mine;
  }
  std::uint64_t size() const { return static_cast<std::uint64_t>(ranks_->collective().size()); }

  static constexpr std::uint64_t kMost = 4096;
  const std::unique_ptr<Collective> tests_ = Ranks();  // not the engine's
  const EnginePlace place_{Ranks(), MakeCpuDevice(1)};
  NoteOutcomes outcomes_;
  SetClock clock_;
  std::unique_ptr<RunningEngine> ranks_;
};

TEST_F(Eviction, LetsTheRowsGoThatWereTouchedLongestAgo) {
  const TableId table = ranks_->Create(Evicting("lru", 10, 1.0F, 0.8F));
  for (std::uint64_t key = 0; key < 10; ++key) ASSERT_TRUE(Push(table, key + 1, {key}).ok());
  ASSERT_TRUE(Push(table, 11, {0, 1}).ok());
  EXPECT_EQ(ranks_->Summarize(table).evicted_rows, 0U) << "a full table is not too full";
  ASSERT_TRUE(Push(table, 12, {2, 100}).ok());  // 2 was touched longest ago, but is the batch's
  EXPECT_EQ(KeysOf(table), (std::vector<std::uint64_t>{0, 1, 2, 6, 7, 8, 9, 100}));
  EXPECT_EQ(ranks_->Summarize(table).evicted_rows, 3U);
  const auto rows = ranks_->Lookup(table, UnitBags({2, 100, 3}), LookupMode::kEval);
  ASSERT_TRUE(rows.ok()) << rows.status().message();
  EXPECT_EQ((*rows)[0], (*rows)[4] - static_cast<float>(size())) << "two steps of row 2, and one of row 100";
  EXPECT_EQ((*rows)[8], 0.0F) << "key 3 has no row any more";
  ASSERT_TRUE(Push(table, 13, {3}).ok());
  const auto again = ranks_->Lookup(table, UnitBags({3, 100}), LookupMode::kEval);
  EXPECT_EQ((*again)[0], (*again)[4]) << "row 3 began anew";
}

// A lookup touches no row, and the rows that it makes score as the next step would.
TEST_F(Eviction, ComesOfLookupsThatMakeRowsToo) {
  const TableId table = ranks_->Create(Evicting("lookups", 4, 1.0F, 0.75F));
  for (std::uint64_t key = 1; key <= 3; ++key) ASSERT_TRUE(Push(table, key, {key}).ok());
  ASSERT_TRUE(ranks_->Lookup(table, UnitBags({1, 2, 3, 4})).ok());
  EXPECT_EQ(KeysOf(table), (std::vector<std::uint64_t>{1, 2, 3, 4}));
  ASSERT_TRUE(Push(table, 4, {5}).ok());
  EXPECT_EQ(KeysOf(table), (std::vector<std::uint64_t>{3, 4, 5}));
  ASSERT_TRUE(ranks_->Lookup(table, UnitBags({6, 7}), LookupMode::kEval).ok());
  EXPECT_EQ(KeysOf(table).size(), 3U) << "EVAL makes none";
}

TEST_F(Eviction, OfOneTableHappensOnlyIfAllOfTheStepFits) {
  const TableId one = ranks_->Create(Evicting("one", 8));
  const TableId other = ranks_->Create(Evicting("other", 8));
  const std::vector<std::uint64_t> all{0, 1, 2, 3, 4, 5, 6, 7};
  ASSERT_TRUE(Push(one, 1, all).ok());
  const Status alone = Push(one, 2, {10, 11, 12, 13, 14, 15, 16, 17, 18});
  EXPECT_EQ(alone.reason(), Reason::kTableFull) << alone.message();
  EXPECT_EQ(alone.code(), StatusCode::kResourceExhausted);
  StepId step{.session = 7, .number = 3, .tables = 2};
  auto first = Start(one, step, {10});
  step.place = 1;
  auto second = Start(other, step, {10, 11, 12, 13, 14, 15, 16, 17, 18});
  EXPECT_FALSE(first.get().ok());
  EXPECT_EQ(second.get().status().reason(), Reason::kTableFull);
  EXPECT_EQ(KeysOf(one), all);
  EXPECT_EQ(ranks_->Summarize(one).evicted_rows, 0U);
  EXPECT_EQ(ranks_->Summarize(one).evicted_ages, PowerHistogram()) << "no row of it went";
  ASSERT_TRUE(Push(one, 4, {7, 8, 9, 10, 11, 12, 13, 14}).ok()) << "all of these fit, and nothing else does";
  EXPECT_EQ(KeysOf(one), (std::vector<std::uint64_t>{7, 8, 9, 10, 11, 12, 13, 14}));
}

// Counts numbers by their bits: as PowerHistogram, without its code.
std::vector<std::uint64_t> Bits(const std::vector<std::uint64_t>& numbers) {
  std::vector<std::uint64_t> counts(PowerHistogram::kBuckets);
  for (std::uint64_t number : numbers) {
    std::size_t bits = 0;
    for (; number > 0; number /= 2) ++bits;
    ++counts.at(bits);
  }
  return counts;
}

// Compares what the ranks say of the rows' ages with the model, over all ranks.
void ExpectAges(const TableSummary& summary, const Model& model) {
  EXPECT_TRUE(std::ranges::equal(summary.evicted_ages.buckets, Bits(model.evicted_ages)));
  EXPECT_TRUE(std::ranges::equal(summary.ages.ages.buckets, Bits(model.Ages())));
  EXPECT_TRUE(std::ranges::equal(summary.ages.counts.buckets, Bits(model.Counts())));
  const std::uint64_t youngest =
      model.last_evicted_ages.empty() ? 0 : *std::ranges::min_element(model.last_evicted_ages);
  EXPECT_LE(summary.youngest_evicted, youngest);
  EXPECT_TRUE(youngest == summary.youngest_evicted || youngest < 2 * summary.youngest_evicted) << youngest;
}

// Many rows of equal scores: the ties decide, over all ranks together.
TEST_F(Eviction, FollowsTheModelThroughAnyBatches) {
  constexpr std::uint64_t kSeed = 20261128;
  RecordProperty("seed", std::to_string(kSeed));
  std::mt19937_64 random(kSeed);
  std::vector<TableOptions> tables{Evicting("narrow", 100, 1.0F, 0.99F), Evicting("wide", 300, 0.9F, 0.2F),
                                   Evicting("tiny", 9, 1.0F, 0.5F)};
  for (const ScoreKind kind : {ScoreKind::kLfu, ScoreKind::kStepLfu}) {
    for (const std::uint64_t half_life : {0U, 4U}) {
      const std::string name = std::string(ToString(kind)) + std::to_string(half_life);
      tables.push_back(Evicting(name.c_str(), 150, 1.0F, 0.7F));
      tables.back().eviction.score = kind;
      tables.back().eviction.half_life_steps = half_life;
    }
  }
  for (const TableOptions& options : tables) {
    SCOPED_TRACE(options.name.str());
    const TableId table = ranks_->Create(options);
    Model model(options);
    for (std::uint64_t number = 1; number <= 60; ++number) {
      std::vector<std::uint64_t> keys(1 + random() % (options.max_rows / 2 + 2));
      const std::uint64_t drift = number * 2;
      for (std::uint64_t& key : keys) key = drift + random() % (options.max_rows * 2);
      if (random() % 4 == 0) {
        ASSERT_EQ(LookupOfAll(table, keys).ok(), model.Insert(keys)) << number;
      } else {
        ASSERT_EQ(Push(table, number, keys).ok(), model.Push(keys, size())) << number;
      }
      if (number % 10 == 0) {
        ExpectAges(ranks_->Summarize(table, true), model);
        ASSERT_EQ(KeysOf(table), model.Keys()) << number;
      }
    }
    EXPECT_EQ(KeysOf(table), model.Keys());
    EXPECT_EQ(ranks_->Summarize(table).evicted_rows, model.evicted);
    EXPECT_GT(model.evicted, 2 * options.max_rows);
  }
}

// Rows of equal scores go alike on all ranks: the order of ties has nothing to do with the keys' owners. Else
// a rank would fill up to limits.max_rank_percent, and refuse new keys for ever.
TEST_F(Eviction, OfTiesLeavesTheRanksEven) {
  constexpr std::uint64_t kMaxRows = 8000;
  for (const ScoreKind kind : {ScoreKind::kLfu, ScoreKind::kStep}) {
    SCOPED_TRACE(ToString(kind));
    TableOptions options = Evicting(kind == ScoreKind::kLfu ? "ties" : "one_step", kMaxRows);
    options.eviction.score = kind;
    const TableId table = ranks_->Create(options);
    std::uint64_t next = 1;
    const auto fresh = [&](std::uint64_t count) {
      std::vector<std::uint64_t> keys(count);
      for (std::uint64_t& key : keys) key = next++;
      return keys;
    };
    // By step, the rows of one lookup tie.
    if (kind == ScoreKind::kStep) {
      ASSERT_TRUE(LookupOfAll(table, fresh(kMaxRows)).ok());
    }
    for (std::uint64_t number = 1; number <= 60; ++number) {
      const Status pushed = Push(table, number, fresh(kind == ScoreKind::kStep ? 100 : 400));
      ASSERT_TRUE(pushed.ok()) << number << ": " << pushed.message();
    }
    for (const ShardUsage& shard : ranks_->Summarize(table).shards) {
      EXPECT_GT(shard.rows * size() * 10, kMaxRows * 8);
      EXPECT_LT(shard.rows * size() * 10, kMaxRows * 12);
    }
  }
}

TEST_F(Eviction, TakesScoresFromAnImport) {
  const TableId table = ranks_->Create(Evicting("import", 4, 1.0F, 0.75F));
  const auto record = [](std::uint64_t score) {
    std::vector<float> floats(6, 0.5F);
    std::memcpy(&floats[4], &score, sizeof(score));
    return floats;
  };
  std::vector<float> records;
  for (const std::uint64_t score : {std::uint64_t{30}, std::uint64_t{10}, std::uint64_t{20}, kScoreOfNew}) {
    const auto more = record(score);
    records.insert(records.end(), more.begin(), more.end());
  }
  ASSERT_TRUE(ranks_->Import(table, {1, 2, 3, 4}, records, 15).ok());
  ASSERT_TRUE(Push(table, 1, {5}).ok());
  EXPECT_EQ(KeysOf(table), (std::vector<std::uint64_t>{1, 3, 5})) << "2 has 10, and 4 has 16";
  const RowRecords mine = ranks_->ReadRows(table, {Key{1}, Key{5}});
  for (std::size_t row = 0; row < mine.keys.size(); ++row) {
    EXPECT_EQ(ScoreOf(&mine.records[row * 6 + 4]), mine.keys[row] == Key{1} ? 30U : 16U);
  }
  Ascending({});  // no rank ends before the others have read their rows
}

using Which = RemoveRequest::Which;

// Rows expire by the step that touched them last, also where the table evicts by counts.
TEST_F(Eviction, RowsExpireThatNoPushTouches) {
  for (const ScoreKind kind : {ScoreKind::kNone, ScoreKind::kStep, ScoreKind::kLfu, ScoreKind::kStepLfu}) {
    for (const std::uint64_t ttl : {1U, 3U, 70U}) {
      const std::string name = std::string(ToString(kind)) + std::to_string(ttl);
      SCOPED_TRACE(name);
      TableOptions options = Evicting(name.c_str(), kMost);
      options.eviction.score = kind;
      options.ttl_steps = ttl;
      const TableId table = ranks_->Create(options);
      std::map<std::uint64_t, std::uint64_t> touched;  // by key, the last step
      std::uint64_t expired = 0;
      for (std::uint64_t step = 1; step <= 2 * ttl + 6; ++step) {
        const std::vector<std::uint64_t> keys{step, step / 2, 4000};
        ASSERT_TRUE(Push(table, step, keys).ok());
        for (const std::uint64_t key : keys) touched[key] = step;
        const std::uint64_t interval = ttl < 16 ? 1 : ttl / 16;
        if (step % interval == 0) {
          expired += std::erase_if(touched, [&](const auto& row) { return row.second + ttl <= step; });
        }
        std::vector<std::uint64_t> left;
        for (const auto& [key, last] : touched) left.push_back(key);
        ASSERT_EQ(KeysOf(table), left) << step;
      }
      EXPECT_EQ(ranks_->Summarize(table).expired_rows, expired);
      EXPECT_EQ(ranks_->Summarize(table).evicted_rows, 0U);
      EXPECT_GT(expired, 3U);
    }
  }
  Ascending({});  // no rank ends before the others have been answered
}

// A row that a lookup makes scores as the next step would, and the table sweeps by pushes alone.
TEST_F(Eviction, LookupsTouchNoRow) {
  TableOptions options = Evicting("looked_at", kMost);
  options.eviction = {};
  options.ttl_steps = 2;
  const TableId table = ranks_->Create(options);
  ASSERT_TRUE(LookupOfAll(table, {1, 2}).ok());
  for (const std::uint64_t step : {1U, 2U}) {
    ASSERT_TRUE(Push(table, step, {3}).ok());
    ASSERT_TRUE(LookupOfAll(table, {1}).ok());
    EXPECT_EQ(KeysOf(table), (std::vector<std::uint64_t>{1, 2, 3})) << step;
  }
  ASSERT_TRUE(Push(table, 3, {3}).ok());
  EXPECT_EQ(KeysOf(table), (std::vector<std::uint64_t>{3})) << "1 and 2 were made for step 1";
}

// The server sweeps by itself too, so the test asks what is left, and not which sweep found it.
TEST_F(Eviction, RowsExpireByTheClock) {
  TableOptions options = Evicting("timed", kMost);
  options.eviction = {};
  options.ttl_seconds = 160;  // swept every 10 s
  const TableId table = ranks_->Create(options);
  // Every rank sets its own clock, of which rank 0's counts.
  const auto pass = [&](std::uint64_t seconds) {
    clock_.seconds += seconds;
    Ascending({});
    EXPECT_TRUE(ranks_->Remove(table, Which::kExpired).ok());
  };
  pass(0);
  ASSERT_TRUE(Push(table, 1, {1, 2}).ok());
  pass(10);  // marks that the table has one step
  ASSERT_TRUE(Push(table, 2, {2, 3}).ok());
  pass(10);
  pass(149);
  EXPECT_EQ(KeysOf(table), (std::vector<std::uint64_t>{1, 2, 3}));
  pass(1);
  EXPECT_EQ(KeysOf(table), (std::vector<std::uint64_t>{2, 3})) << "160 s after the mark";
  pass(~std::uint64_t{0} - 999'999);  // somebody sets the clock back
  EXPECT_EQ(KeysOf(table), (std::vector<std::uint64_t>{2, 3}));
  clock_.seconds += 1'000'000 + 10;
  while (!KeysOf(table).empty()) std::this_thread::yield();
  EXPECT_EQ(ranks_->Summarize(table).expired_rows, 3U);
  Ascending({});  // no rank ends before the others have been answered
}

TEST_F(Eviction, ByHandKeepsAsManyRowsAsWereAskedFor) {
  TableOptions options = Evicting("by_hand", kMost);
  options.eviction.score = ScoreKind::kLfu;
  const TableId table = ranks_->Create(options);
  ASSERT_TRUE(Push(table, 1, {1, 2, 2, 3, 3, 3, 4, 4, 4, 4}).ok());
  const auto remove = [&](Which which, std::uint64_t number) {
    std::array<std::uint64_t, 1> rows{*ranks_->Remove(table, which, number)};
    tests_->AllReduceSum(rows);
    return rows[0];
  };
  EXPECT_EQ(remove(Which::kAllBut, 4), 0U);
  EXPECT_EQ(remove(Which::kAllBut, 3), 1U);
  EXPECT_EQ(KeysOf(table), (std::vector<std::uint64_t>{2, 3, 4}));
  EXPECT_EQ(remove(Which::kBelow, 2 * size()), 0U);
  EXPECT_EQ(remove(Which::kBelow, 2 * size() + 1), 1U) << "row 2 counts two a rank";
  EXPECT_EQ(KeysOf(table), (std::vector<std::uint64_t>{3, 4}));
  EXPECT_EQ(ranks_->Remove(table, Which::kExpired).status().message(),
            "table by_hand has no time to live: its rows never expire");
  EXPECT_EQ(remove(Which::kBelow, ~std::uint64_t{0}), 2U);
  EXPECT_EQ(remove(Which::kAllBut, 0), 0U);
  EXPECT_EQ(ranks_->Summarize(table).evicted_rows, 4U);
  EXPECT_EQ(ranks_->Summarize(table).evicted_ages, PowerHistogram()) << "the table was not full";

  options = Evicting("no_scores", kMost);
  options.eviction = {};
  const TableId other = ranks_->Create(options);
  const auto refused = ranks_->Remove(other, Which::kAllBut);
  EXPECT_EQ(refused.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(refused.status().message(),
            "table no_scores keeps no scores: make it with an eviction or a time to live");
  EXPECT_EQ(ranks_->Remove(other, Which::kExpired).status().code(), StatusCode::kFailedPrecondition);
  Ascending({});  // no rank ends before the others have been answered
}

TEST_F(Eviction, SaysWhichKeysItHasRemoved) {
  const TableId table = ranks_->Create(Evicting("small", 8));
  ASSERT_TRUE(Push(table, 1, {1, 2, 3, 4, 5}).ok());
  std::array<std::uint64_t, 1> erased{ranks_->Erase(table, {2, 4, 4, 9})};
  tests_->AllReduceSum(erased);
  EXPECT_EQ(erased[0], 2U) << "every rank asks, and the first one's round finds the rows";
  ranks_.reset();  // its thread has ended
  const std::vector<std::uint64_t> removed = [&] {
    std::vector<std::uint64_t> mine;
    for (const Key key : outcomes_.removed) mine.push_back(Value(key));
    return mine;
  }();
  EXPECT_EQ(Ascending(removed), (std::vector<std::uint64_t>{2, 4}));
}

}  // namespace
}  // namespace slotwise::test
