// A replay applies a journal's rounds as the engine did. It refuses records that no server writes, even with
// right checksums: records of requests that a server refuses, or that do not follow from the state.
#include "server/engine/operations/replay.h"

#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "server/durability/bounds.h"
#include "server/durability/options_text.h"
#include "server/engine/operations/alter_table.h"
#include "server/engine/operations/create_table.h"
#include "server/engine/operations/drop_table.h"
#include "server/engine/operations/import_rows.h"
#include "server/engine/operations/load_checkpoint.h"
#include "server/engine/operations/push.h"
#include "server/engine/operations/remove_rows.h"
#include "server/engine/operations/set_learning_rate.h"
#include "tests/durability/sim_files.h"
#include "tests/support/test_secret.h"

namespace slotwise::test {
namespace {

using ::testing::HasSubstr;
using namespace operations;  // NOLINT(google-build-using-namespace): the test is of them

constexpr std::uint32_t kDim = 2;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A record of batches, with the arrays that its spans point to.
struct Written {
  std::vector<Key> keys{Key{7}, Key{8}, Key{9}};
  std::vector<std::uint32_t> offsets{0, 1, 2, 3};
  std::vector<float> weights;
  std::vector<float> values;
  DataType type = DataType::kFloat32;
  RecordedBatches record;

  RecordedBatches Of() const {
    RecordedBatches of = record;
    of.arrays = {{.keys = keys,
                  .offsets = offsets,
                  .weights = weights,
                  .values = std::as_bytes(std::span(values)),
                  .value_type = type}};
    return of;
  }
};

class ReplayTest : public ::testing::Test {
 protected:
  ReplayTest() {
    TableOptions options;
    options.name = TableName("ads");
    options.dim = kDim;
    options.optimizer.kind = OptimizerKind::kAdaGrad;
    EXPECT_EQ(Create(1, options), "");
    options.name = TableName("single");
    options.combiner = Combiner::kNone;
    EXPECT_EQ(Create(2, options), "");
  }

  // Each returns why the records were refused, or nothing.
  template <class O>
  std::string Apply(const std::vector<typename O::Record>& records) {
    const Status status = O::Replay(context_, records);
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::kDataLoss) << status.message();
    return status.message();
  }
  std::string Create(std::uint32_t id, const TableOptions& options, std::uint64_t generation = 5) {
    return Apply<CreateTable>({{.table = TableId{id}, .generation = generation, .options = options}});
  }
  std::string ApplyPush(const Written& push) { return Apply<Push>({push.Of()}); }
  std::string ApplyImport(const Written& import) { return Apply<ImportRows>({import.Of()}); }
  // A change of the next push.
  std::string Pushed(const std::function<void(Written&)>& change, std::uint32_t table = 1) {
    Written push = NextPush(table);
    change(push);
    return ApplyPush(push);
  }
  std::string Imported(const std::function<void(Written&)>& change) {
    Written import = Import();
    change(import);
    return ApplyImport(import);
  }

  // The next step of a table: 3 bags of one key.
  Written NextPush(std::uint32_t table = 1) {
    Written push;
    push.values.assign(3 * kDim, 0.5F);
    push.record.step = {.session = 3, .number = ++number_, .epoch = 1};
    push.record.shares = {{.table = TableId{table},
                           .steps = tables_.Get(TableId{table})->steps + 1,
                           .parts = {{.samples = 3, .keys = 3, .body = 1}}}};
    return push;
  }
  // Rows of 3 keys, with their state.
  Written Import() {
    Written import = NextPush();
    import.values.assign(3 * 2 * kDim, 0.5F);
    import.record.step = {};
    import.record.with_state = true;
    return import;
  }
  std::uint64_t rows() { return tables_.Get(TableId{1})->shard->Usage().rows; }
  std::uint64_t steps() { return tables_.Get(TableId{1})->steps; }

  SimFiles files_;
  const std::unique_ptr<Device> device_ = MakeCpuDevice(1);
  const std::unique_ptr<Collective> collective_ = MakeSoloCollective();
  Tables tables_{16};
  const TableMaker maker_{*device_, *collective_, kTestSecret, RankLimit{}};
  CheckpointLoader loader_{
      Checkpoints(files_, "checkpoints"), SystemThreads(), *device_, *collective_, maker_, tables_};
  ReplayContext context_{*device_, tables_, maker_, loader_};
  std::uint64_t number_ = 0;
};

TEST_F(ReplayTest, AppliesWhatAServerHasWritten) {
  EXPECT_EQ(ApplyPush(NextPush()), "");
  EXPECT_EQ(ApplyPush(NextPush(2)), "");
  EXPECT_EQ(Pushed([](Written& push) { push.weights = {1, 2, 3}; }), "");
  EXPECT_EQ(Pushed([](Written& push) { push.offsets = {0, 0, 2, 3}; }), "");
  EXPECT_EQ(ApplyImport(Import()), "");
  EXPECT_EQ(steps(), 4U);
  EXPECT_EQ(rows(), 3U);
}

TEST_F(ReplayTest, RefusesBatchesThatTheShardsWouldReadBeyond) {
  using V = std::vector<std::uint32_t>;
  for (const V& offsets : {V{}, V{0}, V{0, 1, 2}, V{0, 1, 2, 3, 3}, V{1, 1, 2, 3}, V{0, 2, 1, 3},
                           V{0, 1, 2, 4}, V{0, 1, 2, 2}, V{0, 1, 2, 0xFFFF'FFFF}}) {
    EXPECT_THAT(Pushed([&](Written& push) { push.offsets = offsets; }), HasSubstr("offsets"))
        << offsets.size();
  }
  EXPECT_THAT(Pushed(
                  [](Written& push) {
                    push.offsets = {0, 0, 2, 3};
                  },
                  2),
              HasSubstr("every bag has one key"));
  EXPECT_THAT(Imported([](Written& import) {
                import.offsets = {0, 0, 2, 3};
              }),
              HasSubstr("every bag has one key"));
  EXPECT_THAT(Pushed([](Written& push) { push.weights = {1, 2}; }), HasSubstr("weights has 2"));
  EXPECT_THAT(Pushed([](Written& push) { push.values.pop_back(); }), HasSubstr("too few values"));
  EXPECT_THAT(Pushed([](Written& push) { push.record.shares[0].parts[0].samples = 0xFFFF'FFFF; }),
              HasSubstr("bags"));
  EXPECT_THAT(Pushed([](Written& push) { push.record.shares[0].parts[0].rank = 1; }),
              HasSubstr("a part came to rank 1 of 1"));
  EXPECT_EQ(rows(), 0U);
  EXPECT_EQ(steps(), 0U);
}

TEST_F(ReplayTest, RefusesRemovalsThatDoNotFollow) {
  using operations::RemoveRows;
  TableOptions options = tables_.Get(TableId{1})->info.options;
  options.name = TableName("expiring");
  options.ttl_steps = 3;
  EXPECT_EQ(Create(3, options), "");
  options.name = TableName("evicting");
  options.ttl_steps = 0;
  options.eviction.score = ScoreKind::kLfu;
  EXPECT_EQ(Create(4, options), "");
  for (const std::uint32_t table : {3U, 4U}) EXPECT_EQ(ApplyPush(NextPush(table)), "");
  const auto removed = [&](const std::function<void(RemoveRows::Record&)>& change) {
    RemoveRows::Record record{.table = TableId{3}, .flags = 7, .steps = 1, .last = {0, 5}, .removed = {}};
    change(record);
    return Apply<RemoveRows>({record});
  };
  EXPECT_THAT(removed([](auto& record) { record.table = TableId{9}; }), HasSubstr("there is no table 9"));
  EXPECT_THAT(removed([](auto& record) { record.table = TableId{1}; }), HasSubstr("has no scores"));
  EXPECT_THAT(removed([](auto& record) { record.table = TableId{4}; }), HasSubstr("rows never expire"));
  EXPECT_THAT(removed([](auto& record) { record.steps = 2; }), HasSubstr("has taken 1 steps"));
  for (const std::uint32_t flags : {0U, 8U})
    EXPECT_THAT(removed([&](auto& record) { record.flags = flags; }), HasSubstr("must be 1 to 7"));
  EXPECT_THAT(removed([](auto& record) { record.seconds = ~std::uint64_t{0}; }), HasSubstr("seconds is"));
  EXPECT_EQ(tables_.Get(TableId{3})->shard->Usage().rows, 3U);
  EXPECT_EQ(tables_.Get(TableId{3})->expiry.swept_steps, 0U);
  EXPECT_EQ(removed([](auto& record) { record.last = {1, 0}; }), "");
  EXPECT_EQ(removed([](auto& record) { record.last = {1, ~std::uint64_t{0}}; }), "");
  EXPECT_EQ(tables_.Get(TableId{3})->shard->Usage().rows, 0U);
  EXPECT_EQ(tables_.Get(TableId{3})->expiry.swept_steps, 1U);
  EXPECT_EQ(context_.evicted.rows, 3U);
}

TEST_F(ReplayTest, RefusesNumbersThatARowCannotHave) {
  for (const float number : {std::nanf(""), kInfinity, -kInfinity}) {
    EXPECT_THAT(Pushed([&](Written& push) { push.values[3] = number; }), HasSubstr("number 1 of row 1 is "))
        << number;
    EXPECT_THAT(Pushed([&](Written& push) { push.weights = {1, number, 1}; }), HasSubstr("weights[1] is "));
    EXPECT_THAT(Imported([&](Written& import) { import.values[4] = number; }),
                HasSubstr("number 0 of row 1 is "));
  }
  EXPECT_THAT(Imported([](Written& import) { import.values[7] = -1; }), HasSubstr("number 3 of row 1 is -1"));
  EXPECT_EQ(Imported([](Written& import) { import.values[5] = -1; }), "") << "a weight may be";
}

TEST_F(ReplayTest, RefusesRecordsOfRanksThatDoNotSayTheSame) {
  const auto two = [&](const std::function<void(RecordedBatches&)>& change) {
    const Written push = NextPush();
    RecordedBatches other = push.Of();
    other.arrays.clear();  // all parts came to rank 0
    change(other);
    return Apply<Push>({push.Of(), other});
  };
  EXPECT_EQ(two([](RecordedBatches&) {}), "");
  constexpr const char* kWords = "ranks 0 and 1 have recorded different rounds";
  EXPECT_THAT(two([](RecordedBatches& r) { ++r.step.number; }), HasSubstr(kWords));
  EXPECT_THAT(two([](RecordedBatches& r) { ++r.step.epoch; }), HasSubstr(kWords));
  EXPECT_THAT(two([](RecordedBatches& r) { r.shares.clear(); }), HasSubstr(kWords));
  EXPECT_THAT(two([](RecordedBatches& r) { ++r.shares[0].steps; }), HasSubstr(kWords));
  EXPECT_THAT(two([](RecordedBatches& r) { r.shares[0].table = TableId{2}; }), HasSubstr(kWords));
  EXPECT_THAT(two([](RecordedBatches& r) { ++r.shares[0].parts[0].body; }), HasSubstr(kWords));
}

TEST_F(ReplayTest, RefusesStepsThatNoServerHasApplied) {
  EXPECT_THAT(Pushed([](Written& push) { push.record.shares.clear(); }), HasSubstr("of no table"));
  EXPECT_THAT(Imported([](Written& import) { import.record.shares.clear(); }), HasSubstr("of no table"));
  EXPECT_THAT(Imported([](Written& import) { import.record.shares.push_back(import.record.shares[0]); }),
              HasSubstr("of 2 tables"));
  EXPECT_THAT(Pushed([](Written& push) { push.record.shares[0].parts.clear(); }),
              HasSubstr("other parts than"));
  EXPECT_THAT(Pushed([](Written& push) { push.record.shares[0].parts[0].part = 1; }),
              HasSubstr("other parts than 0 to 0"));
  EXPECT_THAT(Pushed([](Written& push) { push.record.step.parts = 2; }),
              HasSubstr("other parts than 0 to 1"));
  EXPECT_THAT(Pushed([](Written& push) { push.record.step.parts = 0; }), HasSubstr("step.parts is 0"));
  EXPECT_THAT(Pushed([](Written& push) { push.record.step.tables = 2; }), HasSubstr("step.tables is 2"));
  EXPECT_THAT(Pushed([](Written& push) {
                push.record.step.tables = 2;
                push.record.shares.push_back(push.record.shares[0]);
              }),
              HasSubstr("table 1 comes twice"));
  EXPECT_THAT(Pushed([](Written& push) { push.record.step.epoch = kMaxEpoch + 1; }), HasSubstr("step.epoch"));
  EXPECT_THAT(Pushed([](Written& push) { push.record.shares[0].steps = 2; }),
              HasSubstr("comes behind step 0"));
  EXPECT_THAT(Pushed([](Written& push) { push.record.shares[0].table = TableId{9}; }),
              HasSubstr("there is no table 9"));
  for (const float rate : {std::nanf(""), kInfinity, -1.0F}) {
    EXPECT_THAT(Pushed([rate](Written& push) { push.record.shares[0].learning_rate = rate; }),
                HasSubstr("learning_rate is"));
  }
  const Written push = NextPush();
  EXPECT_EQ(ApplyPush(push), "");
  EXPECT_THAT(Pushed([&](Written& again) { again.record.step = push.record.step; }),
              HasSubstr("was applied before"));
  EXPECT_EQ(Pushed([&](Written& late) { late.record.step.number = 3 * Ledger::kWindow; }), "");
  EXPECT_THAT(ApplyPush(NextPush()), HasSubstr("was applied before")) << "too old to know";
}

TEST_F(ReplayTest, ACountOfStepsNeitherFallsNorWraps) {
  EXPECT_EQ(Imported([](Written& import) { import.record.shares[0].steps = 50; }), "");
  EXPECT_THAT(Imported([](Written& import) { import.record.shares[0].steps = 49; }),
              HasSubstr("50 steps to 49"));
  for (const std::uint64_t steps : {kMaxSteps + 1, ~std::uint64_t{0}}) {
    EXPECT_THAT(Imported([&](Written& import) { import.record.shares[0].steps = steps; }),
                HasSubstr("which no table's count reaches"));
  }
  EXPECT_EQ(steps(), 50U);
}

TEST_F(ReplayTest, ATableHasANewIdAndAGenerationAndARateThatOneCanHave) {
  TableOptions options;
  options.name = TableName("later");
  options.dim = kDim;
  for (const std::uint32_t id : {0U, 1U, 2U, 0xFFFF'0001U, 0xFFFF'FFFFU})
    EXPECT_NE(Create(id, options), "") << id;
  EXPECT_THAT(Create(3, options, 0), HasSubstr("generation is 0"));
  EXPECT_EQ(Create(4, options), "");
  EXPECT_THAT(Create(5, options), HasSubstr("is there already"));
  EXPECT_TRUE(DropTable::Check(tables_, {TableId{4}}).ok());
  DropTable::Apply(tables_, {TableId{4}});
  EXPECT_EQ(DropTable::Check(tables_, {TableId{4}}).code(), StatusCode::kDataLoss);
  EXPECT_THAT(Create(4, options), HasSubstr("a new table has id 4, and the next one is 5"));
  for (const float rate : {std::nanf(""), kInfinity, -1.0F})
    EXPECT_EQ(SetLearningRate::Check(tables_, {TableId{1}, rate}).code(), StatusCode::kDataLoss) << rate;
  EXPECT_EQ(SetLearningRate::Check(tables_, {TableId{4}, 1}).code(), StatusCode::kDataLoss);
  EXPECT_TRUE(SetLearningRate::Check(tables_, {TableId{1}, 0.5F}).ok());
  SetLearningRate::Apply(tables_, {TableId{1}, 0.5F});
  EXPECT_EQ(tables_.Get(TableId{1})->learning_rate, 0.5F);
}

TEST_F(ReplayTest, RefusesAlterationsThatDoNotFollow) {
  const auto alter = [&](const std::function<void(TableOptions&)>& change,
                         const std::function<void(AlterTable::Record&)>& of_record = {}) {
    TableOptions options = tables_.Get(TableId{1})->info.options;
    change(options);
    AlterTable::Record record{
        .table = TableId{1}, .steps = steps(), .last = {}, .removed = {}, .options = OptionsText(options)};
    if (of_record) of_record(record);
    return Apply<AlterTable>({record});
  };
  const auto same = [](TableOptions&) {};
  const auto counts = [](TableOptions& options) {
    options.admission = {.kind = AdmissionKind::kFrequency, .threshold = 2};
  };
  EXPECT_EQ(ApplyPush(NextPush()), "");
  EXPECT_THAT(alter(same, [](auto& record) { record.table = TableId{7}; }), HasSubstr("there is no table 7"));
  EXPECT_THAT(alter(same, [](auto& record) { ++record.steps; }), HasSubstr("and was altered at 2"));
  EXPECT_THAT(alter(same, [](auto& record) { record.options = "no options"; }), HasSubstr("options"));
  EXPECT_THAT(alter([](TableOptions& options) { options.dim = 3; }), HasSubstr("dim is 2, not 3"));
  EXPECT_THAT(alter([](TableOptions& options) { options.name = TableName("single"); }),
              HasSubstr("cannot be altered"));
  EXPECT_THAT(alter([](TableOptions& options) {
                options.eviction = {.score = ScoreKind::kStep, .half_life_steps = 1};
              }),
              HasSubstr("half_life_steps is 1"));
  EXPECT_THAT(alter(same, [](auto& record) { record.candidates = TableId{3}; }), HasSubstr("have id 3"));
  EXPECT_THAT(alter(same, [](auto& record) { record.removed.rows = 1; }), HasSubstr("no candidates"));
  for (const std::uint32_t id : {0U, 1U, 2U, 0xFFFF'0001U})
    EXPECT_THAT(alter(counts, [&](auto& record) { record.candidates = TableId{id}; }),
                HasSubstr("and the next one is 3"));
  EXPECT_EQ(alter(counts, [](auto& record) { record.candidates = TableId{3}; }), "");
  EXPECT_EQ(tables_.Get(TableId{1})->candidates, TableId{3});
  EXPECT_FALSE(context_.rows_were_altered);
  EXPECT_EQ(alter([](TableOptions& options) { options.ttl_steps = 9; }), "");
  EXPECT_TRUE(context_.rows_were_altered);
  EXPECT_EQ(alter([](TableOptions& options) { options.admission = {}; }), "");
  EXPECT_EQ(tables_.Get(TableId{3}), nullptr);
  EXPECT_EQ(rows(), 3U);
}

// What recovery hands over are bytes of a kind.
TEST_F(ReplayTest, RefusesKindsThatDifferOrAreUnknown) {
  const OperationTable operations;
  const std::vector<std::uint64_t> drop{2};  // the body of a drop of table 2
  const auto apply = [&](std::vector<std::uint32_t> kinds, std::size_t bytes = 8) {
    std::vector<RecordOfRank> records;
    for (const std::uint32_t kind : kinds)
      records.push_back({RecordKind{kind}, std::as_bytes(std::span(drop)).first(bytes)});
    return ReplayRound(operations, context_, records);
  };
  constexpr std::uint32_t kDrop = 6;
  EXPECT_THAT(apply({99}).message(), HasSubstr("kind 99, which this version does not know"));
  EXPECT_THAT(apply({kDrop, 4}).message(), HasSubstr("ranks 0 and 1 have recorded different rounds"));
  EXPECT_THAT(apply({kDrop, kDrop}, 2).message(), HasSubstr("do not fit together, at byte 0"));
  EXPECT_NE(tables_.Get(TableId{2}), nullptr);
  EXPECT_EQ(apply({kDrop, kDrop}).message(), "");
  EXPECT_EQ(tables_.Get(TableId{2}), nullptr);
  EXPECT_EQ(apply({kDrop}).code(), StatusCode::kDataLoss);
}

TEST(AnOperationTable, HasNoTwoOfANumberOrARecord) {
  OperationTraits traits = TraitsOf<SetLearningRate>();
  EXPECT_THROW(OperationTable(std::span(&traits, 1)), std::logic_error) << "the number";
  traits.number = Operation{200};
  EXPECT_THROW(OperationTable(std::span(&traits, 1)), std::logic_error) << "the record";
  traits.records = {};
  EXPECT_NO_THROW(OperationTable(std::span(&traits, 1)));
}

// A checkpoint without tables, and with a ledger of these bytes.
TEST_F(ReplayTest, ACheckpointIsLoadedByAnIdThatSaysItsRoundAndWithALedgerThatFits) {
  const auto load = [&](const std::string& id, const std::vector<std::byte>& ledger) {
    Manifest manifest;
    manifest.id = id;
    manifest.next_table_id = 10;
    EXPECT_TRUE(files_.MakeFolder("checkpoints").ok());
    EXPECT_TRUE(files_.RemoveFolder("checkpoints/" + id).ok());
    EXPECT_TRUE(files_.MakeFolder("checkpoints/" + id).ok());
    auto writer = BlockWriter::Create(files_, "checkpoints/" + id, std::string(kLedgerName));
    EXPECT_TRUE(writer->Append(ledger).ok());
    manifest.ledger = *writer->Finish();
    return loader_.Load({manifest}).status();
  };
  const std::string id = CheckpointId({.round = 0, .instance = 0});
  const std::vector<std::byte> ledger = Ledger().Save();
  EXPECT_TRUE(load(id, ledger).ok());
  EXPECT_TRUE(load(id + "-folded", ledger).ok());
  for (const std::string other : {"zzz", "0-0000000000000000", "latest"}) {
    const Status status = load(other, ledger);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(),
                HasSubstr("checkpoint " + other + " in checkpoints has an id that no server gives"));
  }
  const Status status = load(id, {ledger.begin(), ledger.end() - 8});
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << "an older checkpoint may be whole";
  EXPECT_THAT(status.message(),
              HasSubstr("checkpoints/" + id + "/ledger.bin: the ledger's bytes do not fit"));
}

TEST_F(ReplayTest, LoadedTablesAreNamedOnceAndInOrder) {
  const auto load = [&](bool some, std::vector<std::uint32_t> ids) {
    LoadCheckpoint::Record record;
    record.some = some;
    for (const std::uint32_t id : ids) record.tables.push_back(TableId{id});
    return LoadCheckpoint::Replay(context_, std::span(&record, 1)).message();
  };
  constexpr const char* kWords = "the loaded tables' ids do not ascend, or there are none";
  for (const std::string& refused :
       {load(true, {}), load(true, {2, 1}), load(true, {1, 1}), load(false, {1})}) {
    EXPECT_EQ(refused, kWords);
  }
  for (const std::string& goes_on : {load(true, {1, 2}), load(false, {})})
    EXPECT_THAT(goes_on, HasSubstr("checkpoint , which was loaded then, cannot be used"));
}

}  // namespace
}  // namespace slotwise::test
