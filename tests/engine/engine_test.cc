// Tests the engine on the ranks that mpirun starts, on each kind of device of this machine. Each rank submits
// its own requests and checks its own answers.
#include "server/engine/engine.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "server/engine/operations/lookup.h"
#include "server/engine/operations/push.h"
#include "server/engine/operations/summarize.h"
#include "server/engine/schedule/round_scheduler.h"
#include "tests/engine/running_engine.h"
#include "tests/support/batches.h"
#include "tests/support/device_kinds.h"
#include "tests/support/status.h"

namespace slotwise::test {
namespace {

TableOptions Ones(std::uint64_t max_rows = 1 << 20) {
  TableOptions options;
  options.name = TableName("ones");
  options.dim = 4;
  options.slots = 2;
  options.optimizer.learning_rate = 1;
  options.initializer = {1, 1, 0};
  options.max_rows = max_rows;
  return options;
}

class EngineTest : public testing::TestWithParam<DeviceKind> {
 protected:
  static void TearDownTestSuite() { places_.clear(); }

  void SetUp() override {
    Start({});
    if (!ranks_) GTEST_SKIP() << "this machine has no GPU";
  }
  RunningEngine& ranks() { return *ranks_; }
  int me() { return Value(ranks_->collective().rank()); }
  int size() { return ranks_->collective().size(); }
  void Restart(EngineOptions options, const DurabilityOptions* durability = nullptr) {
    ranks_.reset();
    Start(options, durability);
  }
  void RestartForEachWay(const std::function<void()>& check) {
    for (const OutputDistribution way : {OutputDistribution::kAllBags, OutputDistribution::kOwnedBags}) {
      SCOPED_TRACE(way == OutputDistribution::kAllBags ? "all bags" : "owned bags");
      Restart({.distribution = {.way = way}});
      check();
    }
  }
  // All ranks come here before any goes on: a step of a table made for it, one part a rank.
  void Meet() {
    TableOptions options = Ones();
    options.name = TableName("meeting");
    const TableId table = ranks_->Create(options);
    const StepId step{1, ++meetings_, static_cast<std::uint32_t>(me()), static_cast<std::uint32_t>(size())};
    Result<std::uint64_t> met = ranks_->Push(table, step, {0, {}, {0}}, {});
    // A rank that was late for the step's deadline, or whose request queue is full, meets the others at the
    // next try.
    while (met.status().code() == StatusCode::kDeadlineExceeded || met.status().retry_after().count() > 0)
      met = ranks_->Push(table, step, {0, {}, {0}}, {});
    EXPECT_TRUE(met.ok()) << met.status().message();
  }
  static constexpr std::uint32_t kParts = 7;
  void CheckManyRequestsInFlight();
  void CheckStepsOfParts(const std::function<std::vector<int>(std::uint32_t)>& ranks_of);

 private:
  void Start(EngineOptions options, const DurabilityOptions* durability = nullptr) {
    std::unique_ptr<EnginePlace>& place = places_[GetParam().name];
    if (!place) {
      auto collective = MakeMpiCollective();
      auto device = GetParam().make(collective->local_rank());
      if (!device) return;
      place = std::make_unique<EnginePlace>(std::move(collective), std::move(device));
    }
    ranks_ = std::make_unique<RunningEngine>(*place, MakeMpiCollective(), options, durability);
  }

  inline static std::map<std::string, std::unique_ptr<EnginePlace>> places_;  // by kinds of device

  std::unique_ptr<RunningEngine> ranks_;
  std::uint64_t meetings_ = 0;
};

INSTANTIATE_TEST_SUITE_P(OnEveryKindOfDevice, EngineTest, testing::Values(kCpu, kApart, kApartDrawn, kCuda),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(EngineTest, ARankThatHasWorkWakesTheOthers) {
  if (me() == size() - 1) {
    const TableId table = ranks().Create(Ones());
    const auto pooled = ranks().Lookup(table, {1, {7, 8, 7}, {0, 2, 3}});
    EXPECT_EQ(*pooled, (std::vector<float>{2, 2, 2, 2, 1, 1, 1, 1}));
  }
  Meet();
}

// Ranks' clocks differ, and all have to know the same.
TEST_P(EngineTest, AStartGoesByTheAgeThatRankZeroSays) {
  if (GetParam().name != kCpu.name) GTEST_SKIP() << "the device has nothing to do with it";
  DurabilityOptions durability;
  {
    const auto meeting = MakeMpiCollective();
    const std::string name = "slotwise-age-" + std::to_string(AllGatherValues(*meeting, getpid()).front());
    durability.folder = std::filesystem::temp_directory_path() / name;
  }
  std::uint64_t now = 1000;  // long before the folder's own time
  const auto start = [&](std::uint64_t instance) {
    EngineOptions options;
    options.instance = instance;
    durability.unix_time = [now, rank = me()] { return now + 500U * static_cast<std::uint64_t>(rank); };
    Restart(options, &durability);
    EXPECT_TRUE(ranks().recovered().ok()) << ranks().recovered().status().message();
    return ranks().recovered()->base;
  };
  const CheckpointBase first = start(7);
  EXPECT_EQ(first.age.count(), 0) << "a time in the future counts as now";
  EXPECT_EQ(first.newest_bytes, 0U);
  Meet();
  if (me() == 0) {
    EXPECT_TRUE(ranks().Save().ok());
  }
  Meet();
  now = 1138;
  const CheckpointBase second = start(8);
  EXPECT_EQ(second.age, std::chrono::seconds(138));
  EXPECT_GT(second.newest_bytes, 0U);
  EXPECT_EQ(ranks().engine().Stats().checkpoints->newest_bytes, second.newest_bytes);
  now = 900;
  EXPECT_EQ(start(9).age.count(), 0) << "somebody has set the clock";
  Restart({});
  if (me() == 0) std::filesystem::remove_all(durability.folder);
}

TEST_P(EngineTest, EveryRankGetsItsOwnSamples) {
  const TableId table = ranks().Create(Ones());
  for (int turn = 0; turn < 50; ++turn) {
    // Rank r sends r + turn % 3 samples (none, often), whose bags hold r + 1 keys and one.
    Bags bags{static_cast<std::uint32_t>(me() + turn % 3), {}, {0}};
    std::vector<float> expected;
    for (std::uint32_t sample = 0; sample < bags.samples; ++sample) {
      for (const int keys : {me() + 1, 1}) {
        for (int k = 0; k < keys; ++k)
          bags.keys.push_back(static_cast<std::uint64_t>(turn * k + 1000 * sample));
        bags.offsets.push_back(static_cast<std::uint32_t>(bags.keys.size()));
        expected.insert(expected.end(), 4, static_cast<float>(keys));
      }
    }
    EXPECT_EQ(Must(ranks().Lookup(table, bags)), expected);
  }
  Meet();
}

// Steps of kParts parts, of which each goes to the ranks that ranks_of(part) says, make the table that they
// make on a single rank.
void EngineTest::CheckStepsOfParts(const std::function<std::vector<int>(std::uint32_t)>& ranks_of) {
  constexpr std::uint64_t kSeed = 7;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937_64 random(kSeed);
  TableOptions options = Ones();
  options.initializer = {-1, 1, 5};
  options.combiner = Combiner::kMean;
  options.optimizer.kind = OptimizerKind::kAdam;
  options.optimizer.learning_rate = 0.1F;
  const TableId table = ranks().Create(options);
  const EnginePlace alone_place(MakeSoloCollective(), MakeCpuDevice(1));
  RunningEngine alone(alone_place, MakeSoloCollective());
  const TableId alone_table = alone.Create(options);

  for (std::uint64_t number = 1; number <= 10; ++number) {
    std::vector<std::future<Result<std::uint64_t>>> answers;
    for (std::uint32_t part = 0; part < kParts; ++part) {
      Bags bags{1 + static_cast<std::uint32_t>(random() % 20), {}, {0}};
      std::vector<float> gradients;
      for (std::uint32_t bag = 0; bag < 2 * bags.samples; ++bag) {
        for (std::uint64_t k = random() % 4; k > 0; --k)
          bags.keys.push_back(random() % 3 == 0 ? 0 : random() % 100);
        bags.offsets.push_back(static_cast<std::uint32_t>(bags.keys.size()));
        for (int j = 0; j < 4; ++j) gradients.push_back(static_cast<float>(random() % 2001) / 1000.0F - 1.0F);
      }
      const StepId step{77, number, part, kParts};
      if (std::ranges::count(ranks_of(part), me()) > 0) {
        answers.push_back(ranks().StartPush(table, step, bags, gradients));
      }
      answers.push_back(alone.StartPush(alone_table, step, bags, gradients));
    }
    for (auto& answer : answers) {
      EXPECT_EQ(Must(answer.get()), number);
    }
  }
  Meet();
  EXPECT_EQ(ranks().Summarize(table).digest, alone.Summarize(alone_table).digest);
  EXPECT_EQ(ranks().Summarize(table).steps, 10U);
  Meet();
}

// In no order of the ranks, and some of them twice.
TEST_P(EngineTest, AStepIsTheSumOfItsPartsWhereverTheyCome) {
  std::mt19937_64 random(8);
  CheckStepsOfParts([&](std::uint32_t) {
    const int rank = static_cast<int>(random() % static_cast<std::uint64_t>(size()));
    return random() % 5 == 0 ? std::vector{rank, (rank + 1) % size()} : std::vector{rank};
  });
}

TEST_P(EngineTest, AStepIsTheSumOfPartsThatComeInTheOrderOfTheRanks) {
  RestartForEachWay([this] {
    CheckStepsOfParts(
        [&](std::uint32_t part) { return std::vector{static_cast<int>(part) * size() / int{kParts}}; });
  });
}

TEST_P(EngineTest, ATableCountsItsRoundsByHowTheirBagsTravelled) {
  const TableId table = ranks().Create(Ones());
  const Bags bags{1, {1, 2}, {0, 1, 2}};
  const std::vector<float> gradients(8, 0.25F);
  if (me() == 0) {
    for (std::uint64_t number = 1; number <= 3; ++number) {
      ASSERT_TRUE(ranks().Lookup(table, bags).ok());
      ASSERT_TRUE(ranks().Push(table, {5, number, 0, 1}, bags, gradients).ok());
    }
  }
  Meet();
  const TravelledRounds before = ranks().Summarize(table).rounds;
  EXPECT_EQ(before.all_bags + before.owned_bags, size() == 1 ? 0U : 6U);
  // Gradients of parts that come in another order than the ranks' are put in order by all ranks.
  const auto part = static_cast<std::uint32_t>(size() - 1 - me());
  ASSERT_TRUE(ranks().Push(table, {5, 4, part, static_cast<std::uint32_t>(size())}, bags, gradients).ok());
  const TravelledRounds after = ranks().Summarize(table).rounds;
  EXPECT_EQ(after.all_bags, before.all_bags + (size() == 1 ? 0 : 1));
  EXPECT_EQ(after.owned_bags, before.owned_bags);
  Meet();
}

// Row k is 4 times k + 1 and sums of such are exact, so they do not depend on the order of ranks.
class Exact {
 public:
  static constexpr std::uint64_t kKeys = 100;

  static TableOptions Options(const char* name, Combiner combiner) {
    TableOptions options = Ones();
    options.name = TableName(name);
    options.combiner = combiner;
    return options;
  }
  static void Fill(RunningEngine& engine, TableId table) {
    std::vector<std::uint64_t> keys(kKeys);
    std::vector<float> rows;
    for (std::uint64_t k = 0; k < kKeys; ++k) {
      keys[k] = k;
      rows.insert(rows.end(), 4, static_cast<float>(k + 1));
    }
    EXPECT_TRUE(engine.Import(table, keys, rows).ok());
  }

  // Bags of up to 4 keys, of which some batches weigh theirs, and what they pool to.
  Exact(std::mt19937_64& random, Combiner combiner)
      : bags{static_cast<std::uint32_t>(random() % 40), {}, {0}} {
    const bool weighted = random() % 3 == 0;
    for (std::uint32_t bag = 0; bag < 2 * bags.samples; ++bag) {
      float sum = 0;
      float divisor = 0;
      for (std::uint64_t k = random() % 5; k > 0; --k) {
        const std::uint64_t key = random() % kKeys;
        const auto weight = static_cast<float>(weighted ? 1 + random() % 3 : 1);
        bags.keys.push_back(key);
        if (weighted) bags.weights.push_back(weight);
        sum += weight * static_cast<float>(key + 1);
        divisor += weight;
      }
      bags.offsets.push_back(static_cast<std::uint32_t>(bags.keys.size()));
      pooled.insert(pooled.end(), 4, combiner == Combiner::kMean && divisor > 0 ? sum / divisor : sum);
    }
  }

  Bags bags;
  std::vector<float> pooled;
};

// No rank waits for an answer before all is asked, so rounds of several tables follow each other closely.
void EngineTest::CheckManyRequestsInFlight() {
  const auto seed = 31 + static_cast<std::uint64_t>(me());
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  constexpr Combiner kCombiners[]{Combiner::kSum, Combiner::kMean};
  const TableId tables[]{ranks().Create(Exact::Options("sums", Combiner::kSum)),
                         ranks().Create(Exact::Options("means", Combiner::kMean))};
  const TableId pushed = ranks().Create(Ones());
  if (me() == 0) {
    for (const TableId table : tables) Exact::Fill(ranks(), table);
  }
  Meet();
  std::vector<std::pair<std::future<Result<std::vector<float>>>, std::vector<float>>> lookups;
  std::vector<std::future<Result<std::uint64_t>>> pushes;
  const auto my_key = static_cast<std::uint64_t>(me());
  constexpr std::uint64_t kTurns = 150;
  for (std::uint64_t turn = 1; turn <= kTurns; ++turn) {
    const std::size_t which = random() % 2;
    Exact batch(random, kCombiners[which]);
    const LookupMode mode = random() % 2 == 0 ? LookupMode::kEval : LookupMode::kTrain;
    lookups.emplace_back(ranks().StartLookup(tables[which], batch.bags, mode), std::move(batch.pooled));
    pushes.push_back(ranks().StartPush(pushed, {100 + my_key, turn, 0, 1}, {1, {my_key, my_key}, {0, 1, 2}},
                                       std::vector<float>(8, 1)));
  }
  for (auto& [answer, expected] : lookups) {
    ASSERT_EQ(Must(answer.get()), expected);
  }
  for (auto& answer : pushes) ASSERT_TRUE(answer.get().ok());
  // Every step took 1 from each element, for each of its two bags.
  EXPECT_EQ(*ranks().Lookup(pushed, {1, {my_key}, {0, 1, 1}}, LookupMode::kEval),
            (std::vector<float>{1 - 2.0F * kTurns, 1 - 2.0F * kTurns, 1 - 2.0F * kTurns, 1 - 2.0F * kTurns, 0,
                                0, 0, 0}));
  Meet();
}

TEST_P(EngineTest, EveryOneOfManyRequestsInFlightGetsItsOwnAnswer) {
  RestartForEachWay([this] { CheckManyRequestsInFlight(); });
}

// The lookup comes when some of many steps, which came in one message, were applied.
TEST_P(EngineTest, ACallerWaitsForNoneOfTheManyStepsThatAnotherSentBefore) {
  constexpr int kSteps = 400;
  constexpr int kBefore = 10;
  const TableId table = ranks().Create(Ones());
  Meet();
  std::promise<int> applied_before_lookup;
  std::promise<void> all_applied;
  int applied = 0;
  std::vector<Request> steps;
  for (std::uint64_t number = 1; number <= kSteps; ++number) {
    PushRequest push{
        table, {7 + static_cast<std::uint64_t>(me()), number, 0, 1}, PartOf({0, {}, {0, 0, 0}}), {}};
    push.caller = Caller("flood");
    push.done = [&](const Result<AppliedStep>& step) {
      EXPECT_TRUE(step.ok()) << step.status().message();
      if (++applied == kSteps) all_applied.set_value();
      if (applied != kBefore) return;
      LookupRequest lookup{table, LookupMode::kEval, PartOf({1, {7}, {0, 1, 1}}), {}};
      lookup.caller = Caller("small");
      lookup.done = [&](const Result<PooledValues>&) { applied_before_lookup.set_value(applied); };
      ranks().engine().Submit(std::move(lookup));
    };
    steps.emplace_back(std::move(push));
  }
  ranks().engine().Submit(std::move(steps));
  EXPECT_LT(applied_before_lookup.get_future().get(), 100);
  all_applied.get_future().wait();
  Meet();
  EXPECT_EQ(ranks().Summarize(table).steps, static_cast<std::uint64_t>(size()) * kSteps);
  Meet();  // none has stopped before
}

// A lookup that is submitted when another's answer makes room for a round is in that round, if it fits. Else
// ranks whose clients wait for answers could stay out of step: each round full, but of one rank's lookups.
TEST_P(EngineTest, ARoundTakesAlongWhatComesWhileItWaitsForRoom) {
  const Bags bags{1, {1, 2}, {0, 1, 2}};
  Restart({.max_round_bytes = 2 * RoundBytes(1, 2, 2, 4, false)});
  const TableId table = ranks().Create(Ones());
  ASSERT_TRUE(ranks().Lookup(table, bags).ok());
  Meet();
  if (me() == 0) {
    std::promise<void> all_answered;
    std::vector<PooledValues> answers(7);
    std::size_t to_answer = answers.size();  // used by the engine's thread alone
    std::function<void(std::size_t)> look_up = [&](std::size_t i) {
      ranks().engine().Submit(
          LookupRequest{table, LookupMode::kEval, PartOf(bags), [&, i](const Result<PooledValues>& pooled) {
                          if (pooled.ok()) answers[i] = *pooled;
                          // Two rounds' worth, for each stage that a device may have one, and a lookup that
                          // is left over.
                          if (i == 0) {
                            for (std::size_t next = 1; next <= 5; ++next) look_up(next);
                          }
                          if (i == 1) look_up(6);
                          if (--to_answer == 0) all_answered.set_value();
                        }});
    };
    look_up(0);
    all_answered.get_future().get();
    for (const PooledValues& answer : answers) ASSERT_EQ(answer.size, 8U) << "a lookup failed";
    // What a rank gets of a round lies in one array.
    EXPECT_EQ(answers[6].floats().data(), answers[5].floats().data() + answers[5].size)
        << "they had two rounds";
  }
  Meet();
}

TEST_P(EngineTest, RowsAreWrittenToTheStateThatTheCallerMeansOnly) {
  const TableId table = ranks().Create(Ones());
  const std::uint64_t generation = ranks().Summarize(table).generation;
  const std::vector<std::uint64_t> keys{static_cast<std::uint64_t>(me()) + 1};
  const std::vector<float> row(4, 2.0F);
  EXPECT_TRUE(ranks().Import(table, keys, row, 0, generation).ok());
  Meet();
  const DigestSums before = ranks().Summarize(table).digest;
  Meet();
  const Status refused = ranks().Import(table, keys, std::vector<float>(4, 3.0F), 0, generation + 1);
  EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
  EXPECT_EQ(refused.message(), "a checkpoint was loaded since the call began");
  Meet();
  EXPECT_EQ(ranks().Summarize(table).digest, before);
  Meet();  // a rank that is done would refuse what others still ask
}

TEST_P(EngineTest, ATableCanBeDroppedWhileItsRowsAreOnTheirWay) {
  const auto seed = 51 + static_cast<std::uint64_t>(me());
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int turn = 0; turn < 10; ++turn) {
    const TableId table = ranks().Create(Exact::Options("means", Combiner::kMean));
    if (me() == 0) Exact::Fill(ranks(), table);
    Meet();
    std::vector<std::pair<std::future<Result<std::vector<float>>>, std::vector<float>>> lookups;
    for (int i = 0; i < 5; ++i) {
      Exact batch(random, Combiner::kMean);
      lookups.emplace_back(ranks().StartLookup(table, batch.bags, LookupMode::kEval),
                           std::move(batch.pooled));
    }
    if (me() == size() - 1) {
      EXPECT_TRUE(ranks().Drop(table).ok());
    }
    for (auto& [answer, expected] : lookups) {
      const auto pooled = answer.get();
      if (pooled.ok()) {
        EXPECT_EQ(*pooled, expected);
      } else {
        EXPECT_EQ(pooled.status().code(), StatusCode::kNotFound) << pooled.status().message();
      }
    }
    Meet();
  }
}

TEST_P(EngineTest, ARepeatedStepIsAnsweredAndNotAppliedAgain) {
  const TableId table = ranks().Create(Ones());
  Meet();
  const StepId step{5, 3, 0, 1};
  const Bags bags{1, {1, 2}, {0, 1, 2}};
  const std::vector<float> gradients(8, 0.25F);
  // All ranks send the same step at about the same time, twice: it is applied once.
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_EQ(Must(ranks().Push(table, step, bags, gradients)), 1U);
  }
  Meet();
  EXPECT_EQ(*ranks().Lookup(table, bags, LookupMode::kEval), std::vector<float>(8, 0.75F));
  Meet();
}

// What a push says of its lookup may be anything, and counts where the table can have been so.
TEST_P(EngineTest, CountsHowStalePartsOfAppliedStepsAreOnTheRankWhereTheyCame) {
  const TableId table = ranks().Create(Ones());
  Meet();
  const std::uint64_t generation = ranks().Summarize(table).generation;
  const auto counted = [&] {
    for (TableStats& each : ranks().engine().Stats().tables) {
      if (each.name == "ones") return each;
    }
    return TableStats();
  };
  const Bags bags{1, {1, 2}, {0, 1, 2}};
  std::uint64_t step = 0;
  const auto push = [&](const TableVersion& looked_up, const Bags& of) {
    auto answer = std::make_shared<std::promise<Result<AppliedStep>>>();
    PushRequest request{.table = table,
                        .step = {9, step, 0, 1},
                        .batch = PartOf(of, std::vector<float>(of.samples * 8, 0.25F)),
                        .done = [answer](const auto& applied) { answer->set_value(applied); }};
    request.looked_up = looked_up;
    request.gradients = {.squares = 2, .numbers = 4};
    ranks().engine().Submit(std::move(request));
    EXPECT_TRUE(answer->get_future().get().ok());
  };
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  if (me() == 0) {
    const std::vector<TableVersion> said{
        {}, {0, 1}, {generation, 1}, {generation, kMost}, {generation + 1, 0}, {kMost, kMost}};
    for (const TableVersion& looked_up : said) {
      ++step;
      push(looked_up, bags);
    }
    // One of them names a state that the table has been in, when it had one step less.
    StepsStats expected{.sum = 1};
    expected.buckets[1] = 1;
    EXPECT_EQ(counted().staleness, expected);
    push({generation, 0}, bags);  // the last step again: it is not applied again
    EXPECT_EQ(counted().staleness, expected);
    EXPECT_EQ(counted().gradients, (SquareSum{.squares = 12, .numbers = 24}));
    ++step;
    push({generation, 6}, {0, {}, {0}});  // a part without samples has no gradients
    EXPECT_EQ(counted().staleness, expected);
    ++step;
    push({generation, 0}, bags);
    push({generation, 7}, bags);
    expected.buckets[4] = 1;
    expected.sum += 7;
    EXPECT_EQ(counted().staleness, expected);
  }
  Meet();
  if (me() != 0) {
    EXPECT_EQ(counted().staleness, StepsStats()) << "no part came here";
    EXPECT_EQ(counted().gradients, SquareSum());
  }
  Meet();
}

TEST_P(EngineTest, AStepWithMissingPartsIsDroppedAtItsDeadline) {
  Restart({.step_timeout = std::chrono::milliseconds(100)});
  const TableId table = ranks().Create(Ones());
  const StepId mine{static_cast<std::uint64_t>(100 + me()), 1, 0, 2};
  const auto answer = ranks().Push(table, mine, {1, {1, 2}, {0, 1, 2}}, std::vector<float>(8, 1));
  EXPECT_EQ(answer.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(ranks().Summarize(table).steps, 0U);
  Meet();
}

// A part of a step, and what it takes of a request queue.
const Bags kPart{1, {7, 8, 9}, {0, 2, 3}};
const std::vector<float> kPartGradients(8, 1);
constexpr std::uint64_t kPartBytes = 3 * sizeof(Key) + 3 * sizeof(std::uint32_t) + 8 * sizeof(float);

// Two trainers' steps begin on each rank, and their first parts fill what its request queue has for parts.
TEST_P(EngineTest, StepsAreCompletedThoughTheQueueIsFullOfPartsOfSteps) {
  Restart(
      {.max_queue_bytes = 8 * kPartBytes / 3, .request_bytes = 0, .step_timeout = std::chrono::seconds(20)});
  const TableId table = ranks().Create(Ones());
  const auto push = [&](std::uint64_t trainer, std::uint32_t part) {
    const StepId step{100 * static_cast<std::uint64_t>(me() + 1) + trainer, 1, part, 2};
    return ranks().StartPush(table, step, kPart, kPartGradients);
  };
  // As a client does: what finds the request queue full is sent again.
  const auto complete = [&](std::uint64_t trainer) {
    Result<std::uint64_t> pushed = push(trainer, 1).get();
    while (pushed.status().retry_after().count() > 0) {
      std::this_thread::yield();
      pushed = push(trainer, 1).get();
    }
    EXPECT_TRUE(pushed.ok()) << pushed.status().message();
  };
  std::future<Result<std::uint64_t>> begun[] = {push(1, 0), push(2, 0)};
  complete(1);
  complete(2);
  for (auto& first : begun) Must(first.get());
  // To meet is a step, too: that of a rank which is done would be favoured before those of one that is not.
  const std::uint64_t all = 2 * static_cast<std::uint64_t>(size());
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  std::uint64_t steps = 0;
  while (steps < all && std::chrono::steady_clock::now() < deadline) steps = ranks().Summarize(table).steps;
  EXPECT_EQ(steps, all);
  Meet();  // none has stopped before
}

// A message has all parts of a step, but under the step's name another table came before: so one of them
// waits.
TEST_P(EngineTest, APartThatWaitsIsChargedAsOneThoughItsMessageSeemedToHaveTheWholeStep) {
  if (size() > 1) GTEST_SKIP() << "one rank's request queue is enough";
  Restart({.max_queue_bytes = 4800, .request_bytes = 1000});
  std::vector<TableId> tables;
  for (const char* name : {"first", "second", "third"}) {
    TableOptions options = Ones();
    options.name = TableName(name);
    tables.push_back(ranks().Create(options));
  }
  const Bags none{0, {}, {0}};
  const auto waits_alone = [&](std::uint64_t number) {
    return ranks().StartPush(tables[0], {9, number, 0, 2}, none, {});
  };
  std::vector<std::future<Result<std::uint64_t>>> waiting;
  waiting.push_back(ranks().StartPush(tables[0], {9, 1, 0, 1, 0, 0, 3}, none, {}));
  std::promise<void> refused[2];
  std::vector<Request> whole;
  for (std::uint32_t place = 0; place < 3; ++place) {
    PushRequest push{tables[(place + 1) % 3], {9, 1, 0, 1, 0, place, 3}, PartOf(none), {}};
    push.done = [&refused, place](const Result<AppliedStep>& step) {
      if (step.status().code() == StatusCode::kFailedPrecondition) refused[place / 2].set_value();
    };
    whole.emplace_back(std::move(push));
  }
  ranks().engine().Submit(std::move(whole));
  for (auto& each : refused) each.get_future().wait();
  waiting.push_back(waits_alone(2));
  const Result<std::uint64_t> beyond = waits_alone(3).get();
  EXPECT_EQ(beyond.status().code(), StatusCode::kResourceExhausted);
  EXPECT_GT(beyond.status().retry_after().count(), 0);
  EXPECT_NE(beyond.status().message().find("bytes of parts wait for the rest of their steps"),
            std::string::npos)
      << beyond.status().message();
  Restart({});  // ends what waits
}

// A trainer that hears nothing sends its part again, and again: that takes no more room.
TEST_P(EngineTest, PartsThatComeAgainHoldNoRoomInTheQueue) {
  Restart({.max_queue_bytes = 4 * kPartBytes, .request_bytes = 0});
  const TableId table = ranks().Create(Ones());
  const auto push = [&](std::uint32_t part) {
    return ranks().StartPush(table, {100 + static_cast<std::uint64_t>(me()), 1, part, 2}, kPart,
                             kPartGradients);
  };
  std::vector<std::future<Result<std::uint64_t>>> sent;
  for (int again = 0; again < 10; ++again) {
    sent.push_back(push(0));
    // Answered in a round after that in which the part was proposed.
    EXPECT_TRUE(ranks().Lookup(table, {1, {7}, {0, 1, 1}}, LookupMode::kEval).ok());
  }
  sent.push_back(push(1));
  for (auto& part : sent) Must(part.get());
  Meet();
  EXPECT_EQ(ranks().Summarize(table).steps, static_cast<std::uint64_t>(size()));
  Meet();  // none has stopped before
}

TEST_P(EngineTest, AFullTableRefusesTheWholeBatchOnAllRanks) {
  const TableId table = ranks().Create(Ones(10));
  Meet();
  const Bags first{2, {1, 2, 3, 4}, {0, 1, 2, 3, 4}};
  ASSERT_TRUE(ranks().Lookup(table, first).ok());
  Meet();
  const TableSummary before = ranks().Summarize(table);
  Meet();
  Bags many{4, {}, {0}};
  for (std::uint64_t key = 1; key <= 8; ++key) {
    many.keys.push_back(key);  // four of them are there ...
    many.offsets.push_back(static_cast<std::uint32_t>(many.keys.size()));
  }
  for (std::uint64_t key = 0; key < 3; ++key)
    many.keys[key] = 100 + key;  // ... and seven are new, one too many
  ExpectStatus(ranks().Lookup(table, many).status(), StatusCode::kResourceExhausted, "4 of at most 10 rows");
  const auto push =
      ranks().Push(table, {9, static_cast<std::uint64_t>(me()), 0, 1}, many, std::vector<float>(32, 1));
  EXPECT_EQ(push.status().code(), StatusCode::kResourceExhausted);
  Meet();
  EXPECT_EQ(ranks().Summarize(table).digest, before.digest);
  Meet();
  many.keys[0] = 1;  // six new ones fit, though some come twice
  EXPECT_TRUE(ranks().Lookup(table, many).ok());
  Meet();
}

TEST_P(EngineTest, ALookupIsNotRefusedForTheKeysOfAnotherInItsRound) {
  const TableId table = ranks().Create(Ones(2));
  const Bags present{1, {1, 2}, {0, 1, 2}};
  ASSERT_TRUE(ranks().Lookup(table, present).ok());
  Meet();
  std::vector<std::future<Result<std::vector<float>>>> good;
  std::vector<std::future<Result<std::vector<float>>>> bad;
  for (std::uint64_t turn = 0; turn < 20; ++turn) {
    bad.push_back(ranks().StartLookup(table, {1, {1, 100 + turn}, {0, 1, 2}}));
    good.push_back(ranks().StartLookup(table, present));
  }
  for (auto& answer : good) EXPECT_TRUE(answer.get().ok());
  for (auto& answer : bad) EXPECT_EQ(answer.get().status().code(), StatusCode::kResourceExhausted);
  Meet();
}

TEST_P(EngineTest, ADroppedTableIsGoneEverywhere) {
  const TableId table = ranks().Create(Ones());
  Meet();
  if (me() == 0) {
    EXPECT_TRUE(ranks().Drop(table).ok());
  }
  Meet();
  EXPECT_FALSE(ranks().engine().FindTable("ones"));
  EXPECT_EQ(ranks().Lookup(table, {1, {1, 2}, {0, 1, 2}}).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(ranks().Drop(table).code(), StatusCode::kNotFound);
  Meet();
  EXPECT_NE(ranks().Create(Ones()), table);
  Meet();
}

TEST_P(EngineTest, ATooLargeBatchIsRefusedAtOnce) {
  Restart({.max_round_bytes = 100});
  const TableId table = ranks().Create(Ones());
  EXPECT_EQ(ranks().Lookup(table, {4, {}, std::vector<std::uint32_t>(9, 0)}).status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_TRUE(ranks().Lookup(table, {1, {}, {0, 0, 0}}).ok());
  Meet();
}

// A row that occurs often takes partial sums, which are more than the push gathers.
TEST_P(EngineTest, APushThatTakesTooManyPartialSumsIsRefusedAtOnce) {
  constexpr std::uint32_t kKeys = 1100;
  Restart({.max_round_bytes = 100 * 256 * 4 - 1});
  TableOptions options = Ones();
  options.slots = 1;
  options.dim = 256;
  const TableId table = ranks().Create(options);
  if (me() == 0) {
    const auto of_one_key = [](std::uint32_t times) {
      return Bags{1, std::vector<std::uint64_t>(times, 7), {0, times}};
    };
    const std::vector<float> ones(options.dim, 1);
    EXPECT_TRUE(ranks().Lookup(table, of_one_key(kKeys)).ok());
    const Status refused = ranks().Push(table, {1, 1, 0, 1}, of_one_key(kKeys), ones).status();
    EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(
        refused.message(),
        "the batch takes 102400 bytes in a round, more than the 102399 of limits.max_round_mib: send it "
        "in smaller parts");
    EXPECT_TRUE(ranks().Push(table, {1, 1, 0, 1}, of_one_key(kKeys - 11), ones).ok());
  }
  Meet();
}

// Every other rank's part has weights; those without count 1.
TEST_P(EngineTest, AStepMayHavePartsWithWeightsAndPartsWithout) {
  const TableId table = ranks().Create(Ones());
  const auto part =
      static_cast<std::uint32_t>(size() - 1 - me());  // so parts come in another order than ranks
  const bool weighted = part % 2 == 1;
  const Bags bags{1, {7, 8}, {0, 1, 2}, weighted ? std::vector<float>{3.0F, 0.5F} : std::vector<float>{}};
  const StepId step{5, 1, part, static_cast<std::uint32_t>(size())};
  ASSERT_TRUE(ranks().Push(table, step, bags, {1, 1, 1, 1, 2, 2, 2, 2}).ok());
  const int weighted_count = size() / 2;
  const auto weighted_parts = static_cast<float>(weighted_count);
  const auto others = static_cast<float>(size() - weighted_count);
  const float seven = 1.0F - (3.0F * weighted_parts + others);
  const float eight = 1.0F - (2.0F * 0.5F * weighted_parts + 2.0F * others);
  const auto rows = ranks().Lookup(table, {1, {7, 8}, {0, 1, 2}}, LookupMode::kEval);
  EXPECT_EQ(*rows, (std::vector<float>{seven, seven, seven, seven, eight, eight, eight, eight}));
  const auto half = ranks().Lookup(table, {1, {7, 8}, {0, 1, 2}, {0.5F, 2.0F}}, LookupMode::kEval);
  EXPECT_EQ((*half)[0], 0.5F * seven);
  EXPECT_EQ((*half)[4], 2.0F * eight);
  Meet();
}

// Any rank takes any row; each lists and reads its own; together they have all of them, once.
TEST_P(EngineTest, RowsGoInAtAnyRankAndComeOutOfTheirOwn) {
  const TableId table = ranks().Create(Ones());
  std::vector<std::uint64_t> keys;
  std::vector<float> records;
  for (std::uint64_t i = 0; i < 100; ++i) {
    keys.push_back(static_cast<std::uint64_t>(me()) * 1000 + i);
    records.insert(records.end(), 4, static_cast<float>(keys.back()));
  }
  ASSERT_TRUE(ranks().Import(table, keys, records).ok());
  Meet();
  const TableSummary summary = ranks().Summarize(table);
  EXPECT_EQ(summary.steps, 0u);
  std::uint64_t all = 0;
  for (const ShardUsage& shard : summary.shards) all += shard.rows;
  EXPECT_EQ(all, 100u * static_cast<std::uint64_t>(size()));

  const std::vector<Key> mine = ranks().ListKeys(table);
  EXPECT_EQ(mine.size(), summary.shards[static_cast<std::size_t>(me())].rows);
  const RowRecords rows = ranks().ReadRows(table, mine);
  EXPECT_EQ(rows.keys, mine);
  for (std::size_t i = 0; i < mine.size(); ++i) {
    EXPECT_EQ(rows.records[4 * i + 3], static_cast<float>(Value(mine[i])));
  }
  Meet();
  EXPECT_EQ(ranks().Erase(table, keys), 100u);
  Meet();
  EXPECT_TRUE(ranks().ListKeys(table).empty());
  EXPECT_TRUE(ranks().ReadRows(table, mine).keys.empty());
  Meet();
}

TEST_P(EngineTest, AnImportThatDoesNotFitChangesNothingAnywhere) {
  const TableId table = ranks().Create(Ones(10));
  if (me() == 0) {
    EXPECT_TRUE(ranks().Import(table, {1, 2, 3, 4, 5, 6, 7, 8}, std::vector<float>(32, 2.0F)).ok());
    const DigestSums before = ranks().Summarize(table).digest;
    EXPECT_EQ(ranks().Import(table, {8, 9, 10, 11}, std::vector<float>(16, 3.0F)).code(),
              StatusCode::kResourceExhausted);
    EXPECT_EQ(ranks().Summarize(table).digest, before);
  }
  Meet();
}

// Adam goes on where it was: rows, state and t taken out of one table and put into another, the next step is
// the same.
TEST_P(EngineTest, ATableThatIsMovedGoesOnWhereItWas) {
  TableOptions options = Ones();
  options.optimizer = {.kind = OptimizerKind::kAdam, .learning_rate = 0.1F, .epsilon = 1e-8F};
  const TableId first = ranks().Create(options);
  options.name = TableName("moved");
  const TableId second = ranks().Create(options);
  const auto push = [&](TableId table, std::uint64_t number, float gradient) {
    const Bags bags{1, {7, 8, 9}, {0, 1, 3}};
    ASSERT_TRUE(ranks().Push(table, {1, number, 0, 1}, bags, std::vector<float>(8, gradient)).ok());
  };
  if (me() == 0) {
    for (std::uint64_t number = 1; number <= 3; ++number) push(first, number, static_cast<float>(number));
  }
  Meet();
  const RowRecords mine = ranks().ReadRows(first, ranks().ListKeys(first));
  std::vector<std::uint64_t> keys;
  for (const Key key : mine.keys) keys.push_back(Value(key));
  ASSERT_TRUE(ranks().Import(second, keys, mine.records, ranks().Summarize(first).steps).ok());
  Meet();
  EXPECT_EQ(ranks().Summarize(second).digest, ranks().Summarize(first).digest);
  EXPECT_EQ(ranks().Summarize(second).steps, 3u);
  Meet();
  if (me() == 0) {
    push(first, 4, 0.5F);
    push(second, 4, 0.5F);
  }
  Meet();
  EXPECT_EQ(ranks().Summarize(second).digest, ranks().Summarize(first).digest);
  Meet();
}

// Warm-up over 2 steps, then a fall over 4 to 0: lr 0.5, 1, 1, then linearly; what was set replaces lr in it.
TEST_P(EngineTest, TheScheduleMovesTheLearningRate) {
  TableOptions options = Ones();
  options.initializer = {0, 0, 0};
  options.optimizer.schedule = {.warmup_steps = 2, .decay_start = 3, .decay_steps = 4, .decay_power = 1};
  const TableId table = ranks().Create(options);
  if (me() == size() - 1) {
    const std::vector<float> rates{0.5F, 1.0F, 1.0F, 0.75F, 0.5F, 2.5F, 0.0F, 0.0F};
    float row = 0;
    for (std::size_t i = 0; i < rates.size(); ++i) {
      if (i == 5) ranks().SetLearningRate(table, 10);  // × ¼
      EXPECT_EQ(ranks().Summarize(table).learning_rate, rates[i]) << "step " << i + 1;
      ASSERT_TRUE(ranks().Push(table, {1, i + 1, 0, 1}, {1, {7}, {0, 1, 1}}, std::vector<float>(8, 1)).ok());
      row -= rates[i];
      EXPECT_EQ((*ranks().Lookup(table, {1, {7}, {0, 1, 1}}))[0], row) << "step " << i + 1;
    }
  }
  Meet();
}

// --- what a rank may hold

class ARankThatIsSentTooMuch : public EngineTest {
 protected:
  static constexpr std::uint64_t kMaxRows = 1000;

  void SetUp() override {
    EngineTest::SetUp();
    if (IsSkipped()) return;
    Restart({.rank_limit = {.percent = 150, .slack = 10}});
  }

  // Keys of one rank, which anybody can find.
  std::vector<std::uint64_t> KeysOfRank(int rank, std::uint64_t first, std::uint64_t count) {
    std::vector<std::uint64_t> keys(count);
    const std::uint64_t bucket = 4096 / static_cast<std::uint64_t>(size()) * static_cast<std::uint64_t>(rank);
    for (std::uint64_t i = 0; i < count; ++i) keys[i] = KeyOfHash(bucket << 52 | (first + i));
    return keys;
  }
  TableId CreateNarrow() {
    TableOptions options = Ones(kMaxRows);
    options.slots = 1;
    return ranks().Create(options);
  }
  // Rows that a rank may hold: 1.5 times its share of 1000, and 10.
  std::uint64_t Limit() {
    return size() == 1 ? kMaxRows : kMaxRows * 3 / 2 / static_cast<std::uint64_t>(size()) + 10;
  }
  void ExpectRefused(const Status& status, int rank, std::uint64_t wanted, std::uint64_t has) {
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(status.message(), "table ones: rank " + std::to_string(rank) + " would hold " +
                                    std::to_string(wanted) + " rows, of which it has " + std::to_string(has) +
                                    ", and limits.max_rank_percent allows a rank " + std::to_string(Limit()));
  }
};

INSTANTIATE_TEST_SUITE_P(OnEveryKindOfDevice, ARankThatIsSentTooMuch,
                         testing::Values(kCpu, kApart, kApartDrawn, kCuda),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(ARankThatIsSentTooMuch, RefusesByNameAndStaysAsItWas) {
  const TableId table = CreateNarrow();
  const int last = size() - 1;
  if (me() == 0 && size() > 1) {
    const std::uint64_t limit = Limit();
    const std::uint64_t half = limit / 2;
    ASSERT_TRUE(ranks().Lookup(table, UnitBags(KeysOfRank(last, 0, half))).ok());
    const TableSummary before = ranks().Summarize(table);

    const Bags more = UnitBags(KeysOfRank(last, half, limit - half + 1));
    const std::vector<float> ones(more.samples * std::size_t{4}, 1);
    ExpectRefused(ranks().Lookup(table, more).status(), last, limit + 1, half);
    ExpectRefused(ranks().Push(table, {1, 1, 0, 1}, more, ones).status(), last, limit + 1, half);
    ExpectRefused(ranks().Import(table, more.keys, ones), last, limit + 1, half);
    const TableSummary after = ranks().Summarize(table);
    EXPECT_EQ(after.digest, before.digest);
    EXPECT_EQ(after.steps, before.steps);
    for (int r = 0; r < size(); ++r) EXPECT_EQ(after.shards[r].rows, before.shards[r].rows);

    // Repeated keys count once, and keys of other ranks are not refused.
    Bags repeated = UnitBags(KeysOfRank(last, half, limit - half));
    const Bags again = repeated;
    repeated.keys.insert(repeated.keys.end(), again.keys.begin(), again.keys.end());
    repeated = UnitBags(repeated.keys);
    EXPECT_TRUE(ranks().Lookup(table, repeated).ok()) << "up to the limit";
    EXPECT_EQ(ranks().Summarize(table).shards[last].rows, limit);
    ExpectRefused(ranks().Lookup(table, UnitBags(KeysOfRank(last, 5000, 1))).status(), last, limit + 1,
                  limit);
    EXPECT_TRUE(ranks().Lookup(table, UnitBags(KeysOfRank(0, 0, 50))).ok());
    EXPECT_TRUE(ranks().Lookup(table, UnitBags(KeysOfRank(last, 0, limit))).ok()) << "keys that are there";
    EXPECT_EQ(ranks().Erase(table, KeysOfRank(last, 0, 7)), 7u);
    EXPECT_TRUE(ranks().Lookup(table, UnitBags(KeysOfRank(last, 5000, 7))).ok());
  }
  Meet();
}

// Who owns a key is public, so a small request could make one rank write new rows for as long as it likes.
TEST_P(ARankThatIsSentTooMuch, WritesNewRowsOfEightRoundsAtATimeAndNoMore) {
  constexpr std::uint64_t kRowBytes = 1024;
  constexpr std::uint64_t kRound = 2048;
  constexpr std::uint64_t kMost = 8 * kRound / kRowBytes;
  Restart({.max_round_bytes = kRound});
  TableOptions options = Ones();
  options.slots = 1;
  options.dim = kRowBytes / 4;
  const TableId table = ranks().Create(options);
  const int last = size() - 1;
  if (me() == 0) {
    const auto in_one_bag = [&](std::uint64_t first, std::uint64_t count) {
      return Bags{1, KeysOfRank(last, first, count), {0, static_cast<std::uint32_t>(count)}};
    };
    const std::vector<float> ones(options.dim, 1);
    const TableSummary before = ranks().Summarize(table);
    for (const Status& status :
         {ranks().Lookup(table, in_one_bag(0, kMost + 1)).status(),
          ranks().Push(table, {1, 1, 0, 1}, in_one_bag(0, kMost + 1), ones).status()}) {
      EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
      EXPECT_EQ(status.message(), "the batch brings rank " + std::to_string(last) + " " +
                                      std::to_string((kMost + 1) * kRowBytes) +
                                      " bytes of new rows, more than the " +
                                      std::to_string(kMost * kRowBytes) +
                                      " of 8 x limits.max_round_mib: send fewer new keys at once");
    }
    const TableSummary after = ranks().Summarize(table);
    EXPECT_EQ(after.digest, before.digest);
    EXPECT_EQ(after.steps, before.steps);

    Bags repeated = in_one_bag(0, kMost);
    repeated.keys.insert(repeated.keys.end(), 10, repeated.keys.front());
    repeated.offsets[1] += 10;
    EXPECT_TRUE(ranks().Lookup(table, repeated).ok()) << "repeated keys count once";
    EXPECT_TRUE(ranks().Push(table, {1, 1, 0, 1}, in_one_bag(1, kMost), ones).ok()) << "most have rows";
  }
  Meet();
}

TEST_P(ARankThatIsSentTooMuch, IsAllowedAllRowsIfItIsAlone) {
  const TableId table = CreateNarrow();
  if (me() == 0 && size() == 1) {
    EXPECT_TRUE(ranks().Lookup(table, UnitBags(KeysOfRank(0, 0, kMaxRows))).ok());
  }
  Meet();
}

// Lookups that share a round with one that is refused are served.
TEST_P(ARankThatIsSentTooMuch, RefusesNoOtherLookup) {
  const TableId table = CreateNarrow();
  if (size() > 1) {
    const auto mine = static_cast<std::uint64_t>(me());
    std::vector<std::future<Result<std::vector<float>>>> served;
    std::vector<std::future<Result<std::vector<float>>>> refused;
    for (std::uint64_t i = 0; i < 20; ++i) {
      served.push_back(ranks().StartLookup(table, UnitBags(KeysOfRank(me(), 10 * i, 10))));
      refused.push_back(
          ranks().StartLookup(table, UnitBags(KeysOfRank(0, 10'000 * (mine + 1), Limit() + 1))));
    }
    for (auto& answer : served) EXPECT_TRUE(answer.get().ok());
    for (auto& answer : refused) EXPECT_EQ(answer.get().status().code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(ranks().Summarize(table).shards[me()].rows, 200u);
  }
  Meet();
}

}  // namespace
}  // namespace slotwise::test
