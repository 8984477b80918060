// A table is altered by all ranks in one round, and again by a server that recovers: from its journal, from
// checkpoints, and from deltas, of which there are none over an alteration of rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "server/engine/operations/alter_table.h"
#include "tests/durability/watched_files.h"
#include "tests/engine/restarted_server.h"

namespace slotwise::test {
namespace {

using ::testing::HasSubstr;

TableOptions Plain(const char* name = "ads") {
  TableOptions options;
  options.name = TableName(name);
  options.dim = 4;
  options.optimizer.learning_rate = 1;
  options.max_rows = 100;
  return options;
}

AdmissionOptions Bloom(std::uint64_t threshold, std::uint64_t counter_mib) {
  return {.kind = AdmissionKind::kFrequency,
          .threshold = threshold,
          .counter = CounterKind::kBloom,
          .counter_mib = counter_mib};
}

std::vector<std::uint64_t> Keys(std::uint64_t first, std::uint64_t count) {
  std::vector<std::uint64_t> keys(count);
  for (std::uint64_t i = 0; i < count; ++i) keys[i] = first + i;
  return keys;
}

class AlterTest : public RestartedServer {
 protected:
  std::future<Result<AlteredTable>> StartAlter(const TableAlteration& alteration) {
    auto answer = std::make_shared<std::promise<Result<AlteredTable>>>();
    ranks_->engine().Submit(AlterTableRequest{
        .table = table_, .alteration = alteration, .done = [answer](const Result<AlteredTable>& altered) {
          answer->set_value(altered);
        }});
    return answer->get_future();
  }
  Result<AlteredTable> Alter(const TableAlteration& alteration) { return StartAlter(alteration).get(); }
  TableOptions Options() { return ranks_->engine().FindTable("ads")->options; }
  Result<SavedCheckpoint> Save(bool delta) {
    auto answer = std::make_shared<std::promise<Result<SavedCheckpoint>>>();
    ranks_->engine().Submit(SaveCheckpointRequest{
        .delta = delta,
        .done = [answer](const Result<SavedCheckpoint>& saved) { answer->set_value(saved); },
        .caller = {}});
    return answer->get_future().get();
  }
  // Starts again, and expects all to be as it was.
  void Restart() {
    const TableSummary before = ranks_->Summarize(table_);
    const TableOptions options = Options();
    Start();
    const TableSummary after = ranks_->Summarize(table_);
    EXPECT_EQ(after.digest, before.digest);
    EXPECT_EQ(after.steps, before.steps);
    EXPECT_EQ(after.candidates, before.candidates);
    EXPECT_EQ(after.counter_blocks, before.counter_blocks);
    EXPECT_EQ(Options(), options) << FirstDifference(Options(), options);
  }
};

TEST_F(AlterTest, AJournalHasEveryKindOfAlteration) {
  Start();
  table_ = ranks_->Create(Plain());
  ranks_->Create(Plain("next"));
  Push(Keys(0, 50));
  const std::vector<TableAlteration> alterations{
      {.max_rows = 100'000},
      {.eviction = EvictionOptions{.score = ScoreKind::kStep, .to = 0.5F}},
      {.eviction = EvictionOptions{.score = ScoreKind::kLfu, .half_life_steps = 3}},
      {.ttl_steps = 20},
      {.eviction = EvictionOptions{}},
      {.admission = AdmissionOptions{.kind = AdmissionKind::kFrequency, .threshold = 3, .max_keys = 90}},
      {.admission = AdmissionOptions{.kind = AdmissionKind::kFrequency, .threshold = 2, .max_keys = 40}},
      {.admission = Bloom(2, 1)},
      {.admission = Bloom(3, 1)},
      {.admission = Bloom(3, 2)},
      {.admission = AdmissionOptions{.kind = AdmissionKind::kFrequency, .threshold = 2, .max_keys = 40}},
      {.max_rows = 400,
       .admission = AdmissionOptions{.kind = AdmissionKind::kProbability, .probability = 0.5F}},
      {.ttl_steps = 0, .ttl_seconds = 1600},
      {.ttl_seconds = 0, .admission = AdmissionOptions{}},
      {.admission = AdmissionOptions{.kind = AdmissionKind::kFrequency, .threshold = 5}},
      {.admission = Bloom(4, 1)},
  };
  for (std::size_t a = 0; a < alterations.size(); ++a) {
    SCOPED_TRACE(a);
    const auto altered = Alter(alterations[a]);
    ASSERT_TRUE(altered.ok()) << altered.status().message();
    EXPECT_TRUE(altered->altered);
    EXPECT_EQ(altered->options, Options());
    EXPECT_FALSE(Alter(alterations[a])->altered) << "the second time";
    Push(Keys(20 * a, 30));
    Push(Keys(20 * a + 1000, 30));
    Restart();
    EXPECT_EQ(ranks_->Create(Plain()), table_) << "by its old options";
    EXPECT_EQ(ranks_->Create(Options()), table_) << "by its new ones";
  }
}

// The rows say what was counted: a key that has occurred once gets its row in its next push.
TEST_F(AlterTest, CountsOfABloomCounterStayWithItsSizeAlone) {
  Start();
  TableOptions options = Plain();
  options.admission = Bloom(3, 1);
  table_ = ranks_->Create(options);
  const auto rows = [&] { return ranks_->Summarize(table_).shards[0].rows; };
  const auto alter = [&](const AdmissionOptions& to) { ASSERT_TRUE(Alter({.admission = to})->altered); };
  const std::uint64_t bytes = ranks_->Summarize(table_).shards[0].bytes;
  EXPECT_GT(bytes, 1U << 20) << "room for all blocks";
  Push(Keys(0, 20));
  EXPECT_EQ(ranks_->Summarize(table_).candidates, 0U);
  EXPECT_GT(ranks_->Summarize(table_).counter_blocks, 15U);
  alter(Bloom(2, 1));
  Restart();
  Push(Keys(0, 10));
  EXPECT_EQ(rows(), 10U) << "counted before";
  alter(Bloom(2, 2));
  EXPECT_EQ(ranks_->Summarize(table_).counter_blocks, 0U);
  Push(Keys(10, 10));
  EXPECT_EQ(rows(), 10U) << "counts began anew";
  alter({.kind = AdmissionKind::kFrequency, .threshold = 2});
  Push(Keys(10, 10));
  EXPECT_EQ(rows(), 10U) << "and again";
  EXPECT_EQ(ranks_->Summarize(table_).candidates, 10U);
  alter(Bloom(2, 2));
  EXPECT_EQ(ranks_->Summarize(table_).candidates, 0U);
  Push(Keys(10, 10));
  EXPECT_EQ(rows(), 10U);
  ASSERT_TRUE(Save(false).ok());
  Push(Keys(10, 5));
  EXPECT_EQ(rows(), 15U);
  const auto delta = Save(true);
  EXPECT_TRUE(delta->delta);
  Restart();
  Push(Keys(15, 5));
  EXPECT_EQ(rows(), 20U);
  alter(Bloom(2, 1));
  EXPECT_FALSE(Save(true)->delta);
  Restart();
}

// A changed block is in the next delta, and blocks of a checkpoint of 16 bits are exact.
TEST_F(AlterTest, CheckpointsHaveTheBlocksOfABloomCounter) {
  durability_.mode = DurabilityMode::kNone;
  Start();
  TableOptions options = Plain();
  options.admission = Bloom(200, 1);
  table_ = ranks_->Create(options);
  const auto push = [&](std::uint64_t times) {
    std::vector<std::uint64_t> keys;
    for (std::uint64_t i = 0; i < times; ++i) keys.insert(keys.end(), {1, 2, 3});
    Push(keys);
  };
  const auto save = [&](bool delta, DataType type) {
    auto answer = std::make_shared<std::promise<Result<SavedCheckpoint>>>();
    ranks_->engine().Submit(SaveCheckpointRequest{
        .delta = delta,
        .value_type = type,
        .done = [answer](const Result<SavedCheckpoint>& saved) { answer->set_value(saved); },
        .caller = {}});
    const auto saved = answer->get_future().get();
    ASSERT_TRUE(saved.ok()) << saved.status().message();
    EXPECT_EQ(saved->delta, delta);
  };
  push(99);
  save(false, DataType::kFloat16);
  push(50);
  save(true, DataType::kFloat16);
  Start();
  push(50);
  EXPECT_EQ(ranks_->Summarize(table_).shards[0].rows, 0U) << "199 occurrences";
  push(1);
  EXPECT_EQ(ranks_->Summarize(table_).shards[0].rows, 3U);
}

TEST_F(AlterTest, ARefusedAlterationChangesNothing) {
  Start();
  table_ = ranks_->Create(Plain());
  Push(Keys(0, 50));
  const TableSummary before = ranks_->Summarize(table_);
  const auto refused = [&](const TableAlteration& alteration, StatusCode code, const std::string& why) {
    const auto altered = Alter(alteration);
    EXPECT_EQ(altered.status().code(), code);
    EXPECT_THAT(altered.status().message(), HasSubstr(why));
    EXPECT_EQ(ranks_->Summarize(table_).digest, before.digest);
    EXPECT_EQ(Options(), Plain());
  };
  refused({.max_rows = 49}, StatusCode::kFailedPrecondition, "max_rows is 49, and table ads has 50 rows");
  refused({.max_rows = 0}, StatusCode::kInvalidArgument, "max_rows is 0");
  refused({.eviction = EvictionOptions{.score = ScoreKind::kStep, .half_life_steps = 1}},
          StatusCode::kInvalidArgument, "half_life_steps is 1");
  EXPECT_TRUE(Alter({.max_rows = 50})->altered);
  Restart();
}

// A delta says which rows have changed, and an alteration of scores changes all.
TEST_F(AlterTest, ADeltaFollowsWhereRowsStay) {
  Start();
  table_ = ranks_->Create(Plain());
  Push(Keys(0, 50));
  ASSERT_TRUE(Save(false).ok());
  ASSERT_TRUE(Alter({.max_rows = 1000,
                     .admission = AdmissionOptions{.kind = AdmissionKind::kFrequency, .threshold = 2}})
                  ->altered);
  Push(Keys(10, 10));
  auto saved = Save(true);
  ASSERT_TRUE(saved.ok());
  EXPECT_TRUE(saved->delta);
  EXPECT_EQ(saved->rows, 10U);
  Restart();
  for (const TableAlteration& alteration :
       {TableAlteration{.ttl_steps = 50}, TableAlteration{.max_rows = 60},
        TableAlteration{.eviction = EvictionOptions{.score = ScoreKind::kLfu}},
        TableAlteration{.admission = AdmissionOptions{
                            .kind = AdmissionKind::kFrequency, .threshold = 2, .max_keys = 20}}}) {
    ASSERT_TRUE(Alter(alteration)->altered);
    saved = Save(true);
    ASSERT_TRUE(saved.ok());
    EXPECT_FALSE(saved->delta);
    ASSERT_TRUE(Alter({.max_rows = Options().max_rows + 1})->altered);
    Push(Keys(20, 5));
    EXPECT_TRUE(Save(true)->delta);
    Restart();
  }
  // A replayed alteration is none of the checkpoint's changes either.
  ASSERT_TRUE(Alter({.eviction = EvictionOptions{}, .ttl_steps = 0})->altered);
  Restart();
  EXPECT_FALSE(Save(true)->delta);
}

TEST_F(AlterTest, ACheckpointOfBeforeBringsTheOldOptionsBack) {
  Start();
  table_ = ranks_->Create(Plain());
  Push(Keys(0, 50));
  const TableSummary before = ranks_->Summarize(table_);
  const auto first = Save(false);
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(Alter({.max_rows = 77,
                     .eviction = EvictionOptions{.score = ScoreKind::kLfu},
                     .admission = AdmissionOptions{.kind = AdmissionKind::kFrequency, .threshold = 2}})
                  ->altered);
  Push(Keys(30, 50));
  const TableSummary altered = ranks_->Summarize(table_);
  const auto second = Save(false);
  ASSERT_TRUE(second.ok());
  ASSERT_TRUE(ranks_->Load(first->id).ok());
  EXPECT_EQ(Options(), Plain());
  EXPECT_EQ(ranks_->Summarize(table_).digest, before.digest);
  Restart();
  ASSERT_TRUE(ranks_->Load(second->id).ok());
  EXPECT_EQ(Options().max_rows, 77U);
  EXPECT_EQ(ranks_->Summarize(table_).digest, altered.digest);
  EXPECT_EQ(ranks_->Summarize(table_).candidates, 30U);
  EXPECT_EQ(ranks_->Create(Plain()), table_);
  Restart();
}

// A row that was imported while the table had no scores has none.
TEST_F(AlterTest, RefusesRowsWithoutScoresThatItHasNow) {
  Start();
  table_ = ranks_->Create(Plain());
  ASSERT_TRUE(ranks_->Import(table_, {1, 2}, std::vector<float>(8, 1.0F)).ok());
  ASSERT_TRUE(Alter({.ttl_steps = 5})->altered);
  const auto import = [&](std::size_t floats) {
    auto answer = std::make_shared<std::promise<Status>>();
    ranks_->engine().Submit(
        ImportRequest{.table = table_,
                      .batch = PartOf(UnitBags({1, 2}), std::vector<float>(2 * floats, 0.0F)),
                      .with_state = true,
                      .done = [answer](const Status& status) { answer->set_value(status); }});
    return answer->get_future().get();
  };
  EXPECT_TRUE(import(6).ok());
  const Status refused = import(4);
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(refused.reason(), Reason::kTableChanged);
  ASSERT_TRUE(Alter({.ttl_steps = 0})->altered);
  EXPECT_TRUE(import(4).ok());
  EXPECT_EQ(import(6).reason(), Reason::kTableChanged);
}

// While a checkpoint is written, an alteration of rows waits, and any other does not.
TEST_F(AlterTest, AnAlterationOfRowsWaitsForACheckpoint) {
  WatchedFiles watched(files_);  // by the worker's thread alone, once the server has started
  durability_.mode = DurabilityMode::kNone;
  durability_.files = &watched;
  Start();
  table_ = ranks_->Create(Plain());
  Push(Keys(0, 50));
  const TableSummary before = ranks_->Summarize(table_);
  std::promise<void> go_on;
  watched.before_change = [held = go_on.get_future().share()](const std::string&, const std::string& path) {
    if (path.find(".partial") != std::string::npos) held.wait();
    return Status();
  };
  auto saved = std::make_shared<std::promise<Result<SavedCheckpoint>>>();
  ranks_->engine().Submit(SaveCheckpointRequest{
      .done = [saved](const Result<SavedCheckpoint>& result) { saved->set_value(result); }, .caller = {}});
  auto scores = StartAlter({.ttl_steps = 50});
  EXPECT_TRUE(Alter({.max_rows = 1000})->altered);
  EXPECT_EQ(scores.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  EXPECT_EQ(ranks_->Summarize(table_).digest, before.digest);
  go_on.set_value();
  EXPECT_TRUE(saved->get_future().get().ok());
  EXPECT_TRUE(scores.get()->altered);
  EXPECT_EQ(Options().ttl_steps, 50U);
  EXPECT_EQ(Options().max_rows, 1000U);
  ASSERT_TRUE(Save(true).ok());
  Restart();
  ranks_.reset();
}

}  // namespace
}  // namespace slotwise::test
