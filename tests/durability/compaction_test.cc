// A chain can be folded into one base.
#include "server/durability/compaction.h"

#include <gmock/gmock.h>

#include "tests/durability/checkpoint_rig.h"
#include "tests/durability/watched_files.h"
#include "tests/support/status.h"

namespace slotwise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A chain, and the state at its end.
struct Story {
  std::vector<Manifest> chain;
  CheckpointOfTest last;  // the state at the end, as a base has it
};

void Apply(const TableOfTest& change, TableOfTest& table) {
  for (const Key key : change.erased) table.rows.erase(key);
  for (const auto& [key, record] : change.rows) table.rows[key] = record;
}

// A change of a table by a seed: a third of the keys below 400 get new rows, and some are erased, of which
// some come back at once.
TableOfTest ChangeOf(const TableOfTest& table, std::uint64_t seed) {
  TableOfTest change = table;
  change.rows.clear();
  change.erased.clear();
  change.steps += seed;
  for (std::uint64_t i = 0; i < 400; ++i) {
    const std::uint64_t draw = Mix(i * 7 + seed * 1009) % 12;
    const Key key = KeyAt(i);
    if (draw < 4) change.rows[key] = RecordOf(key, seed, WidthOf(table.options));
    if (draw == 3 || draw == 5) change.erased.insert(key);
  }
  return change;
}

// Saves a base on 4 ranks, a delta on 3 and one on 2. Table 2 is dropped by the first delta, which makes
// table 5; table 1 goes on.
Story SaveStory(FileSystem& files, std::array<DataType, 3> types = {},
                std::uint64_t block_bytes = kSmallBlocks) {
  Story story;
  const auto adam = OptionsOf(OptimizerKind::kAdam, 3);
  TableOfTest lasting{.id = 1, .options = adam, .rows = RowsOf(0, 300, 1, WidthOf(adam)), .type = types[0]};
  const TableOfTest dropped{.id = 2, .rows = RowsOf(0, 30, 1, 4)};
  TableOfTest made{.id = 5, .options = OptionsOf(OptimizerKind::kSgd, 2), .type = types[1]};
  CheckpointOfTest checkpoint{.id = "a",
                              .tables = {lasting, dropped},
                              .ranks = 4,
                              .next_table_id = 3,
                              .ledger = "1",
                              .block_bytes = block_bytes};
  story.chain.push_back(MustSave(files, checkpoint));
  for (std::uint64_t i = 1; i <= 2; ++i) {
    std::vector<TableOfTest> changes = {ChangeOf(lasting, i), ChangeOf(made, i)};
    for (TableOfTest& change : changes) change.type = types[i];
    Apply(changes[0], lasting);
    Apply(changes[1], made);
    lasting.steps = changes[0].steps;
    made.steps = changes[1].steps;
    checkpoint.id = i == 1 ? "b" : "c";
    checkpoint.parent = story.chain.back().name();
    checkpoint.tables = changes;
    checkpoint.ranks = static_cast<std::uint32_t>(4 - i);
    checkpoint.owners = i == 2 ? std::optional(EvenOwners(2)) : std::nullopt;
    checkpoint.round += i;
    checkpoint.created += i;
    checkpoint.next_table_id = 6;
    checkpoint.ledger = "ledger " + std::to_string(i);
    story.chain.push_back(MustSave(files, checkpoint));
  }
  story.last = checkpoint;
  story.last.parent.reset();
  story.last.tables = {lasting, made};
  for (TableOfTest& table : story.last.tables) table.type = types[2];
  return story;
}

class CompactionTest : public CheckpointTest {
 protected:
  Result<Manifest> Fold(const Chain& chain, const std::string& id = "f", std::uint64_t memory_bytes = 5000,
                        std::uint64_t block_bytes = kSmallBlocks) {
    return Compact(
        files_, kCheckpoints, chain,
        {.id = id, .server_version = "9.9", .memory_bytes = memory_bytes, .block_bytes = block_bytes});
  }

  // Expects that two checkpoints have the same files but for the manifest, byte for byte.
  void ExpectSameFiles(const std::string& a, const std::string& b) {
    const auto paths = FilesBelow(files_, kCheckpoints + "/" + a);
    EXPECT_EQ(paths.size(), FilesBelow(files_, kCheckpoints + "/" + b).size());
    for (const std::string& path : paths) {
      if (path.ends_with("manifest.json")) continue;
      const std::string other = kCheckpoints + "/" + b + path.substr(kCheckpoints.size() + 1 + a.size());
      ASSERT_TRUE(files_.Open(other).ok()) << other;
      EXPECT_TRUE(files_.Contents(path) == files_.Contents(other)) << path;
    }
  }

  // Saves a delta "d" of a story's end; returns also what it has of the tables.
  std::pair<Manifest, CheckpointOfTest> SaveNext(const Story& story) {
    CheckpointOfTest next = story.last;
    next.id = "d";
    next.parent = story.chain.back().name();
    next.tables = {ChangeOf(story.last.tables[0], 7), ChangeOf(story.last.tables[1], 7)};
    next.round += 1;
    return {MustSave(files_, next), next};
  }
};

TEST_F(CompactionTest, EqualsTheBaseThatHadBeenWrittenByteForByte) {
  const Story story = SaveStory(files_);
  auto direct = story.last;
  direct.id = "direct";
  const Manifest wanted = MustSave(files_, direct);
  for (const std::uint64_t memory_bytes : {std::uint64_t{1}, std::uint64_t{5000}, std::uint64_t{1} << 30}) {
    SCOPED_TRACE(memory_bytes);
    const auto folded = test::Must(Fold(story.chain, "f" + std::to_string(memory_bytes), memory_bytes));
    ExpectSameFiles("direct", folded.id);
    EXPECT_TRUE(Checkpoints(files_, kCheckpoints).Verify(folded.id).ok());
    // But for its names, the manifest is the same too.
    Manifest same = wanted;
    same.id = folded.id;
    same.folds = story.chain.back().name();
    same.server_version = "9.9";
    same.checksum = folded.checksum;
    EXPECT_TRUE(folded == same);
    EXPECT_TRUE(*Checkpoints(files_, kCheckpoints).ChainOf(folded.id) == Chain{folded});
  }
  for (const TableOfTest& table : story.last.tables) {
    const auto rows = test::Must(ReadAll(files_, {wanted}, table.id, 3, ScatteredOwners(3)));
    EXPECT_TRUE(rows == table.rows);
    EXPECT_TRUE(test::Must(ReadAll(files_, story.chain, table.id, 3, ScatteredOwners(3))) == table.rows);
  }
}

// A range of buckets that is in memory at a time ends with its files closed, so the ranges can be counted.
TEST_F(CompactionTest, HasNoMoreRowsInMemoryThanItMay) {
  const auto options = OptionsOf(OptimizerKind::kSgd, 1);
  const TableOfTest table{.options = options, .rows = RowsOf(0, 3000, 1, 1)};
  const Manifest base = MustSave(files_, {.id = "a", .tables = {table}});
  const Manifest tip =
      MustSave(files_, {.id = "b", .parent = base.name(), .tables = {{.options = options, .rows = {}}}});
  const std::uint64_t bytes = table.rows.size() * (sizeof(Key) + sizeof(float));
  for (const std::uint64_t ranges : {1, 2, 10, 50}) {
    WatchedFiles watched(files_);
    const auto folded = test::Must(Compact(watched, kCheckpoints, {base, tip},
                                           {.id = "f" + std::to_string(ranges),
                                            .server_version = "1",
                                            .memory_bytes = bytes / ranges,
                                            .block_bytes = kSmallBlocks}));
    // Keys are read twice: to count what stays, and to write it. No bucket here has 1/50 of the rows.
    const auto opened = static_cast<std::uint64_t>(std::ranges::count_if(
        watched.opened, [](const std::string& path) { return path.ends_with("a/table-1/rank-0.keys.npy"); }));
    EXPECT_GE(opened, 2 * ranges);
    EXPECT_LE(opened, 2 * (ranges + ranges / 4 + 1));
  }
}

TEST_F(CompactionTest, FoldsRanksWhoseBucketsAreScattered) {
  const auto options = OptionsOf(OptimizerKind::kMomentum, 2);
  TableOfTest table{.options = options, .rows = RowsOf(0, 300, 1, WidthOf(options))};
  const Manifest base =
      MustSave(files_, {.id = "a", .tables = {table}, .ranks = 3, .owners = ScatteredOwners(3)});
  const TableOfTest change = ChangeOf(table, 1);
  auto owners = ScatteredOwners(2);
  std::ranges::reverse(owners);
  const Manifest tip =
      MustSave(files_, {.id = "b", .parent = base.name(), .tables = {change}, .ranks = 2, .owners = owners});
  Apply(change, table);
  table.steps = change.steps;
  MustSave(files_, {.id = "direct", .tables = {table}, .ranks = 2, .owners = owners});
  ASSERT_TRUE(Fold({base, tip}).ok());
  ExpectSameFiles("direct", "f");
}

TEST_F(CompactionTest, KeepsAnUnmixedTypeAndTheLargestErrorOfTheChain) {
  constexpr auto kHalf = DataType::kFloat16;
  const auto options = OptionsOf(OptimizerKind::kAdaGrad, 1);
  TableOfTest table{.options = options, .rows = RowsOf(0, 50, 1, 2), .type = kHalf};
  table.rows[KeyAt(3)][0] = 1 + 0x1p-11F;  // off by 2^-11
  const Manifest base = MustSave(files_, {.id = "a", .tables = {table}, .ranks = 2});
  TableOfTest change = table;
  change.rows = RowsOf(3, 9, 2, 2);
  change.rows[KeyAt(4)][0] = 1 + 0x1p-12F;
  const Manifest tip = MustSave(files_, {.id = "b", .parent = base.name(), .tables = {change}, .ranks = 2});
  Apply(change, table);
  MustSave(files_, {.id = "direct", .tables = {table}, .ranks = 2});
  const auto folded = test::Must(Fold({base, tip}));
  ExpectSameFiles("direct", "f");
  EXPECT_EQ(folded.tables[0].value_type, kHalf);
  for (const RankEntry& rank : folded.tables[0].ranks) EXPECT_EQ(rank.largest_error, 0x1p-11F);
}

TEST_F(CompactionTest, WritesFloat32WhereTypesAreMixed) {
  using enum DataType;
  int number = 0;
  for (const std::array<DataType, 3> types : {std::array{kFloat16, kBFloat16, kFloat16},
                                              {kFloat32, kFloat16, kFloat16},
                                              {kFloat16, kFloat16, kFloat32},
                                              {kBFloat16, kBFloat16, kFloat16}}) {
    SCOPED_TRACE(++number);
    SimFiles files;
    ASSERT_TRUE(MakeCheckpointFolder(files).ok());
    Story story = SaveStory(files, types);
    const auto folded =
        test::Must(Compact(files, kCheckpoints, story.chain, {.id = "f", .server_version = "1"}));
    EXPECT_EQ(folded.tables[0].value_type, kFloat32);
    // Table 5 has no values but the deltas'.
    EXPECT_EQ(folded.tables[1].value_type, types[1] == types[2] ? types[2] : kFloat32);
    for (const TableOfTest& table : story.last.tables) {
      const auto rows = test::Must(ReadAll(files, {folded}, table.id));
      EXPECT_TRUE(rows == table.rows);
    }
  }
}

TEST_F(CompactionTest, DeltasOfTheFoldedTipFollowTheBase) {
  const Story story = SaveStory(files_);
  const auto [delta, next] = SaveNext(story);
  const Checkpoints checkpoints(files_, kCheckpoints);
  EXPECT_EQ(checkpoints.ChainOf("d")->size(), 4);

  const Chain shorter{test::Must(Fold(story.chain)), delta};
  EXPECT_TRUE(checkpoints.Newest()->chain == shorter);
  EXPECT_THAT(test::Must(checkpoints.RemoveOld(1)), ElementsAre("c", "b", "a"));
  EXPECT_TRUE(checkpoints.Newest()->chain == shorter);
  TableOfTest table = story.last.tables[0];
  Apply(next.tables[0], table);
  EXPECT_TRUE(*ReadAll(files_, shorter, 1) == table.rows);

  // And what was folded can be folded again.
  const auto again = test::Must(Fold(shorter, "g"));
  EXPECT_TRUE(*ReadAll(files_, {again}, 1) == table.rows);
}

TEST_F(CompactionTest, WhereTheBaseThatFoldsIsDamagedTheFoldedChainStandsIn) {
  const Story story = SaveStory(files_);
  const Manifest delta = SaveNext(story).first;
  ASSERT_TRUE(Fold(story.chain).ok());
  const std::string path = kCheckpoints + "/f/table-1/rank-1.v.npy";
  files_.SetContents(path, Bytes(3));
  const auto newest = test::Must(Checkpoints(files_, kCheckpoints).Newest());
  Chain whole = story.chain;
  whole.push_back(delta);
  EXPECT_TRUE(newest.chain == whole);
  EXPECT_THAT(newest.passed_over, ElementsAre(HasSubstr(path)));
}

// --- Errors

TEST_F(CompactionTest, RefusesWhatCannotBeFolded) {
  const Story story = SaveStory(files_);
  test::ExpectStatus(Fold({story.chain[0]}).status(), StatusCode::kFailedPrecondition,
                     "checkpoint a is a base already");
  EXPECT_EQ(Fold(story.chain, "../f").status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Fold(story.chain, "a").status().code(), StatusCode::kAlreadyExists);
  EXPECT_THAT(*files_.List(kCheckpoints), ElementsAre("a", "b", "c"));
}

TEST_F(CompactionTest, NamesTheFileThatIsDamaged) {
  const Story story = SaveStory(files_);
  for (const std::string id : {"a", "b", "c"}) {
    for (const std::string& path : FilesBelow(files_, kCheckpoints + "/" + id)) {
      // Of table 2, which was dropped, and of older ledgers nothing is read; manifests were.
      if (path.ends_with(".json") || path.find("table-2") != std::string::npos) continue;
      if (path.ends_with("ledger.bin") && id != "c") continue;
      SCOPED_TRACE(path);
      const Bytes whole = files_.Contents(path);
      if (whole.size() == kNpyHeaderBytes) continue;  // no rows
      Bytes other = whole;
      other.back() ^= std::byte{1};
      files_.SetContents(path, other);
      test::ExpectStatus(Fold(story.chain).status(), StatusCode::kFailedPrecondition, path);
      EXPECT_THAT(*files_.List(kCheckpoints), ElementsAre("a", "b", "c"));
      files_.SetContents(path, whole);
    }
  }
}

TEST_F(CompactionTest, AfterAnErrorOrACrashAtAnyStepTheBaseIsThereWholeOrNot) {
  bool ok = false;
  for (std::uint64_t step = 1; !ok; ++step) {
    for (const bool crash : {false, true}) {
      SCOPED_TRACE((crash ? "crash at " : "error at ") + std::to_string(step));
      SimFiles files;
      ASSERT_TRUE(MakeCheckpointFolder(files).ok());
      const Story story = SaveStory(files, {}, 40000);
      if (crash) files.CrashAt(files.operations() + step);
      if (!crash) files.FailAt(files.operations() + step, SimFiles::Fault::kNoSpace);
      const auto folded = Compact(files, kCheckpoints, story.chain, {.id = "f", .server_version = "1"});
      ok = folded.ok();
      const Checkpoints checkpoints(files, kCheckpoints);
      if (crash) {
        files.CrashAt(0);
        files.Crash(step);
        ASSERT_TRUE(checkpoints.RemoveLeftovers().ok());
      } else if (!ok) {
        EXPECT_EQ(folded.status().code(), StatusCode::kResourceExhausted);
      }
      const auto names = files.List(kCheckpoints);
      const bool is_there = names->size() == 4;
      EXPECT_TRUE(is_there || !ok);
      if (is_there) {
        EXPECT_THAT(*names, ElementsAre("a", "b", "c", "f"));
        EXPECT_EQ(checkpoints.Verify("f").message(), "");
        EXPECT_TRUE(*ReadAll(files, *checkpoints.ChainOf("f"), 1) == story.last.tables[0].rows);
      } else {
        EXPECT_THAT(*names, ElementsAre("a", "b", "c"));
      }
    }
    ASSERT_LT(step, 200);
  }
}

}  // namespace
}  // namespace slotwise
