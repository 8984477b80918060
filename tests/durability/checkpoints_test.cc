// Tests which checkpoints are listed, which form a chain, and which is the newest.
#include "server/durability/checkpoints.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>

#include "tests/durability/checkpoints_rig.h"
#include "tests/durability/watched_files.h"
#include "tests/support/status.h"
#include "tests/support/temporary_folder.h"

namespace slotwise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// --- Listing

TEST_F(CheckpointsTest, AFolderThatIsNotThereHasNone) {
  const Checkpoints none(files_, "elsewhere");
  EXPECT_THAT(*none.List(), IsEmpty());
  EXPECT_EQ(none.Newest().status().code(), StatusCode::kNotFound);
  EXPECT_EQ(none.ChainOf("a").status().code(), StatusCode::kNotFound);
  EXPECT_THAT(*none.RemoveOld(1), IsEmpty());
  EXPECT_TRUE(none.RemoveLeftovers().ok());
}

TEST_F(CheckpointsTest, AreListedNewestFirstAndBrokenOnesLast) {
  const auto save = [&](const std::string& id, std::uint64_t created, std::uint64_t round) {
    auto checkpoint = Small(id, round);
    checkpoint.created = created;
    MustSave(files_, checkpoint);
  };
  save("late", 1, 9);
  save("early", 8, 5);
  save("e", 3, 7);
  save("d", 4, 7);
  save("b", 6, 6);
  save("a", 6, 6);
  save("z", 100, 100);
  save("y", 100, 100);
  Break(PathOf("y"));
  ASSERT_TRUE(files_.Remove(PathOf("z")).ok());
  ASSERT_TRUE(files_.MakeFolder(kCheckpoints + "/.x.partial").ok());
  ASSERT_TRUE(files_.MakeFolder(kCheckpoints + "/.x.removed").ok());
  const auto listed = test::Must(checkpoints_.List());
  EXPECT_THAT(IdsOf(listed), ElementsAre("late", "d", "e", "b", "a", "early", "z", "y"));
  for (const ListedCheckpoint& checkpoint : listed)
    EXPECT_EQ(checkpoint.manifest.has_value(), checkpoint.why_not.ok());
  EXPECT_EQ(listed.at(6).why_not, FailedPrecondition(PathOf("z") + " is missing"));
  test::ExpectStatus(listed.at(7).why_not, StatusCode::kFailedPrecondition, PathOf("y") + " is damaged");
}

TEST_F(CheckpointsTest, OfTwoOfTheSameStateTheOneThatFoldsIsNewer) {
  const Manifest base = SaveSmall("a", 1);
  const Manifest tip = SaveSmall("z", 2, &base);
  Manifest folded = SaveSmall("b", 2);
  folded.folds = tip.name();
  Overwrite(PathOf("b"), folded);
  EXPECT_THAT(IdsOf(*checkpoints_.List()), ElementsAre("b", "z", "a"));
}

TEST_F(CheckpointsTest, AFolderThatWasCopiedIsNoCheckpoint) {
  const Manifest manifest = SaveSmall("a", 1);
  ASSERT_TRUE(files_.MakeFolder(kCheckpoints + "/b").ok());
  files_.SetContents(PathOf("b"), files_.Contents(PathOf("a")));
  EXPECT_EQ(checkpoints_.ChainOf("b").status(), FailedPrecondition(PathOf("b") + " is that of checkpoint a"));
  EXPECT_EQ(checkpoints_.Verify("b"), FailedPrecondition(PathOf("b") + " is that of checkpoint a"));
  EXPECT_THAT(IdsOf(checkpoints_.Newest()->chain), ElementsAre("a"));
}

// Of simulated files and the system's.
void ExpectStrayFilesArePassedOver(FileSystem& files, const std::string& folder) {
  const auto make = [&](const std::string& path) {
    ASSERT_TRUE(files.Create(folder + "/" + path).ok()) << path;
  };
  ASSERT_TRUE(files.MakeFolder(folder).ok());
  make("notes");
  make("notes.txt");
  make(".hidden");
  for (const std::string& name :
       {std::string("empty"), std::string("strange"), std::string("strange/manifest.json")})
    ASSERT_TRUE(files.MakeFolder(folder + "/" + name).ok());
  const Checkpoints checkpoints(files, folder);
  const auto listed = test::Must(checkpoints.List());
  EXPECT_THAT(IdsOf(listed), ElementsAre("strange", "notes.txt", "notes", "empty"));
  for (const ListedCheckpoint& stray : listed)
    EXPECT_EQ(stray.why_not.code(), StatusCode::kFailedPrecondition) << stray.why_not.message();
  EXPECT_EQ(checkpoints.Newest().status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(*checkpoints.RemoveOld(1), IsEmpty());
  EXPECT_TRUE(checkpoints.RemoveLeftovers().ok());
  EXPECT_EQ(files.List(folder)->size(), 5);
}

TEST_F(CheckpointsTest, StrayFilesArePassedOver) {
  SaveSmall("a", 1);
  ASSERT_TRUE(files_.Create(kCheckpoints + "/notes").ok());
  const auto newest = test::Must(checkpoints_.Newest());
  EXPECT_THAT(IdsOf(newest.chain), ElementsAre("a"));
  EXPECT_THAT(newest.passed_over, ElementsAre(PathOf("notes") + " is missing"));
  ExpectStrayFilesArePassedOver(files_, "stray");
  const test::TemporaryFolder folder;
  ExpectStrayFilesArePassedOver(SystemFiles(), folder.path() + "/stray");
}

TEST_F(CheckpointsTest, OfWhichTheManifestIsAFifoAreListedAsBroken) {
  const test::TemporaryFolder folder;
  std::filesystem::create_directory(folder.path() + "/a");
  const std::string manifest = folder.path() + "/a/manifest.json";
  ASSERT_EQ(mkfifo(manifest.c_str(), 0600), 0);
  const Checkpoints checkpoints(SystemFiles(), folder.path());
  const auto listed = test::Must(checkpoints.ListUsable());
  EXPECT_THAT(IdsOf(listed), ElementsAre("a"));
  EXPECT_EQ(listed.front().why_not,
            FailedPrecondition("cannot open " + manifest + ": it is no regular file"));
  EXPECT_EQ(checkpoints.Newest().status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(*checkpoints.RemoveOld(1), IsEmpty());
}

// --- Chains

TEST_F(CheckpointsTest, AChainIsABaseAndItsDeltasInOrder) {
  const Manifest a = SaveSmall("a", 1);
  const Manifest b = SaveSmall("b", 2, &a);
  const Manifest c = SaveSmall("c", 3, &b);
  SaveSmall("d", 4, &b);  // another branch
  EXPECT_TRUE(*checkpoints_.ChainOf("a") == Chain{a});
  EXPECT_TRUE(*checkpoints_.ChainOf("c") == (Chain{a, b, c}));
  EXPECT_THAT(IdsOf(*checkpoints_.ChainOf("d")), ElementsAre("a", "b", "d"));
  EXPECT_EQ(checkpoints_.ChainOf("e").status().code(), StatusCode::kNotFound);
}

class ChainTest : public CheckpointsTest {
 protected:
  // Expects that the chain of "c", after "b" and "a", is refused, and that the newest that can be used is
  // "a".
  void ExpectRefused(const std::string& what) {
    const auto chain = checkpoints_.ChainOf("c");
    test::ExpectStatus(chain.status(), StatusCode::kFailedPrecondition, "the chain of checkpoint c ", what);
    const auto newest = test::Must(checkpoints_.Newest());
    EXPECT_THAT(IdsOf(newest.chain), ElementsAre("a"));
    EXPECT_THAT(newest.passed_over, ::testing::Contains(HasSubstr(what)));
  }

  // Expects that a delta "c" that differs so from one that could follow "a" is refused.
  void ExpectForeign(const std::string& what, const std::function<void(CheckpointOfTest&)>& change) {
    SCOPED_TRACE(what);
    CheckpointOfTest checkpoint = Small("c", 2, checkpoints_.ChainOf("a")->back().name());
    change(checkpoint);
    MustSave(files_, checkpoint);
    ExpectRefused("has a foreign link: checkpoint c does not follow a: " + what);
    ASSERT_TRUE(files_.RemoveFolder(kCheckpoints + "/c").ok());
  }
};

TEST_F(ChainTest, WithAGapIsRefused) {
  const Manifest a = SaveSmall("a", 1);
  const Manifest b = SaveSmall("b", 2, &a);
  SaveSmall("c", 3, &b);
  ASSERT_TRUE(files_.RemoveFolder(kCheckpoints + "/b").ok());
  ExpectRefused("has a gap: there is no b");
}

TEST_F(ChainTest, WithABrokenLinkIsRefused) {
  const Manifest a = SaveSmall("a", 1);
  const Manifest b = SaveSmall("b", 2, &a);
  SaveSmall("c", 3, &b);
  Break(PathOf("b"));
  ExpectRefused("is broken: " + PathOf("b") + " is damaged");
}

TEST_F(ChainTest, WithALinkOfAnotherManifestIsRefused) {
  Manifest a = SaveSmall("a", 1);
  Manifest b = SaveSmall("b", 2, &a);
  SaveSmall("c", 3, &b);
  a.round = 0;
  Overwrite(PathOf("a"), a);
  ExpectRefused("has a foreign link: a is not the checkpoint that b was made after");
}

TEST_F(ChainTest, ThatIsItsOwnParentIsRefused) {
  SaveSmall("a", 1);
  const CheckpointName itself{.id = "c", .checksum = 1};
  MustSave(files_, Small("c", 3, itself));
  ExpectRefused("has a foreign link: c is not the checkpoint that c was made after");
}

TEST_F(ChainTest, OfAnotherHistoryIsRefused) {
  CheckpointOfTest first = Small("a", 2);
  first.next_table_id = 3;
  MustSave(files_, first);
  {
    auto fits = Small("c", 2, checkpoints_.ChainOf("a")->back().name());
    MustSave(files_, fits);
    EXPECT_THAT(IdsOf(*checkpoints_.ChainOf("c")), ElementsAre("a", "c"));
    ASSERT_TRUE(files_.RemoveFolder(kCheckpoints + "/c").ok());
  }
  ExpectForeign("they are of different lineages", [](auto& c) { c.data_lineage = 78; });
  ExpectForeign("its next_table_id is smaller", [](auto& c) { c.next_table_id = 2; });
  ExpectForeign("table 2 is not new", [](auto& c) { c.tables[0].id = 2; });
  ExpectForeign("table 1 has another generation", [](auto& c) { c.tables[0].generation = 12; });
  ExpectForeign("table 1 has other options", [](auto& c) { c.tables[0].options.max_load = 0.25F; });
  // A table that was altered to fewer rows had room for more.
  ExpectForeign("table 1 has other options", [](auto& c) { c.tables[0].options.max_rows = 50; });
  ExpectForeign("table 1 has fewer steps", [](auto& c) { c.tables[0].steps = 4; });
}

TEST_F(ChainTest, WhoseRoundsFallIsRefused) {
  const Manifest a = SaveSmall("a", 2);
  MustSave(files_, Small("c", 1, a.name()));
  EXPECT_THAT(checkpoints_.ChainOf("c").status().message(),
              HasSubstr("has a foreign link: checkpoint c does not follow a: its round is 1, not 2"));
  EXPECT_THAT(IdsOf(checkpoints_.Newest()->chain), ElementsAre("a"));
}

TEST_F(ChainTest, ThatIsTooLongIsRefused) {
  Manifest last = MustSave(files_, {.id = "a"});
  for (std::size_t i = 2; i <= kMaxLinks; ++i)
    last = MustSave(files_, {.id = "d" + std::to_string(i), .parent = last.name()});
  EXPECT_EQ(checkpoints_.ChainOf(last.id)->size(), kMaxLinks);
  MustSave(files_, {.id = "c", .parent = last.name()});
  test::ExpectStatus(checkpoints_.ChainOf("c").status(), StatusCode::kFailedPrecondition,
                     "has more than 1024 links");
}

// --- The newest

TEST_F(CheckpointsTest, TheNewestIsTheNewestOfWhichAllFilesAreThere) {
  const Manifest a = SaveSmall("a", 1);
  const Manifest b = SaveSmall("b", 2, &a);
  const Manifest c = SaveSmall("c", 3, &b);
  EXPECT_TRUE(checkpoints_.Newest()->chain == (Chain{a, b, c}));
  EXPECT_THAT(checkpoints_.Newest()->passed_over, IsEmpty());
  const std::string cut = kCheckpoints + "/c/table-1/rank-0.rows.npy";
  files_.SetContents(cut, Bytes(10));
  auto newest = checkpoints_.Newest();
  ASSERT_TRUE(newest.ok());
  EXPECT_TRUE(newest->chain == (Chain{a, b}));
  EXPECT_THAT(newest->passed_over, ElementsAre(HasSubstr(cut + " has 10 bytes")));
  const std::string gone = kCheckpoints + "/b/ledger.bin";
  ASSERT_TRUE(files_.Remove(gone).ok());
  newest = checkpoints_.Newest();
  ASSERT_TRUE(newest.ok());
  EXPECT_TRUE(newest->chain == Chain{a});
  EXPECT_THAT(newest->passed_over, ::testing::Contains(HasSubstr(gone + " is missing")));
  ASSERT_TRUE(files_.Remove(PathOf("a")).ok());
  test::ExpectStatus(checkpoints_.Newest().status(), StatusCode::kFailedPrecondition,
                     PathOf("a") + " is missing");
}

TEST_F(CheckpointsTest, TheNewestIsNoneThatItsReaderRefused) {
  const Manifest a = SaveSmall("a", 1);
  const Manifest b = SaveSmall("b", 2, &a);
  SaveSmall("c", 3, &b);
  const auto newest = test::Must(checkpoints_.Newest({"b"}));
  EXPECT_TRUE(newest.chain == Chain{a});
  EXPECT_EQ(newest.passed_over.size(), 2);
  EXPECT_EQ(checkpoints_.Newest({"a", "b", "c"}).status().code(), StatusCode::kFailedPrecondition);
}

// An old checkpoint must not take the place of a new one that could not be read this time: what happened
// since would be lost.
TEST_F(CheckpointsTest, WhatCannotBeReadIsNotTakenForBroken) {
  const Manifest a = SaveSmall("a", 1);
  const Manifest b = SaveSmall("b", 2, &a);
  SaveSmall("c", 3, &b);
  for (const std::string& path : {PathOf("a"), PathOf("b"), PathOf("c"), kCheckpoints + "/c/ledger.bin",
                                  kCheckpoints + "/a/table-1/rank-0.keys.npy"}) {
    SCOPED_TRACE(path);
    WatchedFiles broken(files_);
    broken.before_open = [&](const std::string& opened) {
      return opened == path ? Unavailable("cannot open " + path + ": Input/output error") : Status();
    };
    const Checkpoints checkpoints(broken, kCheckpoints);
    const Status status = checkpoints.Newest().status();
    test::ExpectStatus(status, StatusCode::kUnavailable, "cannot open " + path);
    if (!path.ends_with("manifest.json")) continue;
    test::ExpectStatus(checkpoints.ChainOf("c").status(), StatusCode::kUnavailable, "cannot open " + path);
    EXPECT_EQ(checkpoints.RemoveOld(1).status().code(), StatusCode::kUnavailable);
  }
}

TEST_F(CheckpointsTest, AChainIsCheckedWithoutReadingItsRows) {
  const Manifest base = SaveSmall("a", 1);
  const Manifest tip = SaveSmall("b", 2, &base);
  EXPECT_TRUE(checkpoints_.CheckChain("b").ok());
  EXPECT_EQ(checkpoints_.CheckChain("c").code(), StatusCode::kNotFound);
  Break(kCheckpoints + "/a/table-1/rank-0.rows.npy");
  EXPECT_TRUE(checkpoints_.CheckChain("b").ok());
  files_.Lose(kCheckpoints + "/a/table-1/rank-0.rows.npy");
  test::ExpectStatus(checkpoints_.CheckChain("b"), StatusCode::kFailedPrecondition,
                     "a/table-1/rank-0.rows.npy");
  ASSERT_TRUE(files_.RemoveFolder(kCheckpoints + "/a").ok());
  EXPECT_EQ(checkpoints_.CheckChain("b"),
            FailedPrecondition("the chain of checkpoint b has a gap: there is no a"));
}

TEST_F(CheckpointsTest, VerifyReadsEveryBlockOfACheckpointAndOfNoOther) {
  const Manifest a = SaveSmall("a", 1);
  SaveSmall("b", 2, &a);
  Break(kCheckpoints + "/a/table-1/rank-0.rows.npy");
  EXPECT_TRUE(checkpoints_.Verify("b").ok());
  test::ExpectStatus(checkpoints_.Verify("a"), StatusCode::kFailedPrecondition,
                     kCheckpoints + "/a/table-1/rank-0.rows.npy is damaged: bytes 0 to");
  EXPECT_EQ(checkpoints_.Verify("c").code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(checkpoints_.Verify("../a").code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace slotwise
