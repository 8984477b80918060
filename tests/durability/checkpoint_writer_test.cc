// Tests a checkpoint writer's refusals and syncs, and the remains of a checkpoint after a crash or an error.
#include "server/durability/checkpoint_writer.h"

#include <gmock/gmock.h>

#include "tests/durability/checkpoint_rig.h"
#include "tests/durability/watched_files.h"
#include "tests/support/status.h"

namespace slotwise {
namespace {

using CheckpointWriterTest = CheckpointTest;

TEST_F(CheckpointWriterTest, AWriterRefusesKeysThatAreNotThoseThatWereAnnounced) {
  const auto options = OptionsOf(OptimizerKind::kSgd, 1);
  auto writer = test::Must(CheckpointWriter::Begin(files_, kCheckpoints, "a", 0, kSmallBlocks));
  std::uint32_t id = 0;
  const auto begin = [&](const BucketStarts& starts, std::optional<BucketStarts> erased = {}) {
    return writer.BeginTable(
        {.table = TableId{++id}, .options = options, .starts = starts, .erased_starts = erased});
  };
  BucketStarts starts(kBucketCount + 1, 3);
  starts[0] = 0;
  starts[1] = 2;  // two keys in bucket 0, one in bucket 1
  const std::vector<Key> keys = {Key{5}, Key{9}, Key{1}};
  const std::vector<float> records = {1, 2, 3};
  const auto span = std::span(keys);
  {
    auto table = test::Must(begin(starts));
    EXPECT_TRUE(table.AppendKeys(span.first(2)).ok());
    EXPECT_TRUE(table.AppendKeys(span.last(1)).ok());
    EXPECT_TRUE(table.AppendRecords(records).ok());
    EXPECT_TRUE(table.Finish().ok());
  }
  const auto expect_internal = [](const Status& status) {
    EXPECT_EQ(status.code(), StatusCode::kInternal) << status.message();
  };
  for (const std::vector<Key>& wrong :
       {std::vector{Key{9}, Key{5}}, {Key{5}, Key{5}}, {Key{5}, Key{9}, Key{1}, Key{2}}})
    expect_internal(begin(starts)->AppendKeys(wrong));
  expect_internal(begin(starts)->AppendRecords(std::vector<float>(4)));
  expect_internal(begin(starts)->AppendErased(span.first(1)));
  expect_internal(begin(starts, starts)->AppendErased(std::vector{Key{9}, Key{5}}));
  BucketStarts falling = starts;
  falling[7] = 1;
  expect_internal(begin(falling).status());
  expect_internal(begin(starts, falling).status());
  expect_internal(begin({0, 3}).status());
  for (const bool keys_lack : {false, true}) {
    auto table = begin(starts);
    EXPECT_TRUE(table->AppendKeys(span.first(keys_lack ? 2 : 3)).ok());
    EXPECT_TRUE(table->AppendRecords(std::span(records).first(keys_lack ? 3 : 2)).ok());
    expect_internal(table->Finish().status());
  }
  {
    auto table = begin(starts, starts);
    EXPECT_TRUE(table->AppendKeys(keys).ok());
    EXPECT_TRUE(table->AppendRecords(records).ok());
    EXPECT_TRUE(table->AppendErased(span.first(2)).ok());
    expect_internal(table->Finish().status());
  }
}

TEST_F(CheckpointWriterTest, ARankHasSyncedAllThatItMadeBeforeItIsDone) {
  CheckpointOfTest checkpoint = TwoTables("a", 1);
  Manifest manifest = BareManifest(checkpoint);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    WatchedFiles watched(files_);
    ASSERT_TRUE(WriteRank(watched, checkpoint, rank, manifest).ok());
    EXPECT_THAT(watched.dirty_files, ::testing::IsEmpty());
    // The partial folder's own name is the publisher's to sync.
    EXPECT_THAT(watched.dirty_folders, ::testing::ElementsAre(kCheckpoints));
  }
}

TEST_F(CheckpointWriterTest, AllIsSyncedBeforeTheCheckpointExists) {
  WatchedFiles watched(files_);
  int published = 0;
  watched.before_change = [&](const std::string& operation, const std::string& path) {
    if (operation != "rename") return Status();
    EXPECT_THAT(watched.dirty_files, ::testing::IsEmpty()) << path;
    auto folders = watched.dirty_folders;
    folders.erase(kCheckpoints);
    if (path.ends_with("manifest.json.new")) {
      folders.erase(PartialFolder(kCheckpoints, "a"));  // which has just got that file
    } else {
      ++published;
    }
    EXPECT_THAT(folders, ::testing::IsEmpty()) << path;
    return Status();
  };
  MustSave(watched, TwoTables("a", 1));
  EXPECT_EQ(published, 1);
  EXPECT_THAT(watched.dirty_files, ::testing::IsEmpty());
  EXPECT_THAT(watched.dirty_folders, ::testing::IsEmpty());
}

TEST_F(CheckpointWriterTest, AnIdIsTakenOnce) {
  const Manifest first = MustSave(files_, TwoTables("a", 1));
  const auto again = Save(files_, TwoTables("a", 2));
  EXPECT_EQ(again.status().code(), StatusCode::kAlreadyExists);
  EXPECT_TRUE(*Checkpoints(files_, kCheckpoints).ChainOf("a") == Chain{first});
}

TEST_F(CheckpointWriterTest, AManifestThatContradictsItselfIsNotPublished) {
  const CheckpointOfTest checkpoint = TwoTables("a", 1);
  Manifest manifest = BareManifest(checkpoint);
  for (std::uint32_t rank = 0; rank < 2; ++rank)
    ASSERT_TRUE(WriteRank(files_, checkpoint, rank, manifest).ok());
  manifest.tables[0].ranks[1].rows += 1;
  EXPECT_EQ(PublishCheckpoint(files_, kCheckpoints, manifest).code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Checkpoints(files_, kCheckpoints).List()->empty());
}

// --- Crashes

CheckpointOfTest Small(const std::string& id, std::uint64_t seed) {
  const auto options = OptionsOf(OptimizerKind::kAdaGrad, 1);
  return {.id = id,
          .tables = {{.options = options, .rows = RowsOf(0, 20 + seed, seed, WidthOf(options))}},
          .ranks = 2,
          .created = seed,
          .round = seed,
          .block_bytes = 20000};
}

// Expects "b" whole, or, unless it was published, "a".
void ExpectOldOrNew(SimFiles& files, bool published) {
  const Checkpoints checkpoints(files, kCheckpoints);
  ASSERT_TRUE(checkpoints.RemoveLeftovers().ok());
  const auto newest = test::Must(checkpoints.Newest());
  EXPECT_TRUE(newest.passed_over.empty());
  const std::string id = newest.chain.back().id;
  EXPECT_TRUE(id == "b" || (id == "a" && !published)) << id;
  EXPECT_EQ(checkpoints.Verify(id).message(), "");
  const auto rows = test::Must(ReadAll(files, newest.chain, 1));
  EXPECT_TRUE(rows == Small(id, id == "a" ? 1 : 2).tables[0].rows);
  const auto names = files.List(kCheckpoints);
  EXPECT_EQ(names->size(), id == "a" ? 1 : 2);
  if (id == "b") return;
  EXPECT_TRUE(Save(files, Small("b", 2)).ok());
}

TEST(CheckpointCrashTest, AtAnyStepOfWritingAndPublishingTheOldOrTheNewIsThere) {
  CrashAtAnyStep(
      6, [](SimFiles& files) { MustSave(files, Small("a", 1)); },
      [](SimFiles& files) { return Save(files, Small("b", 2)).ok(); }, ExpectOldOrNew);
}

TEST(CheckpointCrashTest, WhenAnyStepFailsTheOldOrTheNewIsThere) {
  for (const auto fault : {SimFiles::Fault::kNoSpace, SimFiles::Fault::kBroken}) {
    bool ok = false;
    for (std::uint64_t step = 1; !ok; ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      SimFiles files;
      ASSERT_TRUE(MakeCheckpointFolder(files).ok());
      MustSave(files, Small("a", 1));
      files.FailAt(files.operations() + step, fault);
      const auto saved = Save(files, Small("b", 2));
      ok = saved.ok();
      if (!ok) {
        EXPECT_EQ(saved.status().code(), fault == SimFiles::Fault::kNoSpace ? StatusCode::kResourceExhausted
                                                                            : StatusCode::kUnavailable);
      }
      files.FailAt(0, fault);
      ExpectOldOrNew(files, ok);
      if (::testing::Test::HasFatalFailure()) return;
      ASSERT_LT(step, 200);
    }
  }
}

}  // namespace
}  // namespace slotwise
