// Which checkpoints may go, and that they go whole.
#include <gmock/gmock.h>
#include <stdlib.h>

#include <filesystem>

#include "tests/durability/checkpoints_rig.h"
#include "tests/durability/watched_files.h"
#include "tests/support/temporary_folder.h"

namespace slotwise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RemoveTest : public CheckpointsTest {
 protected:
  // Three chains: a b c, d, e f; the last two are newer.
  static void SaveChains(SimFiles& files) {
    const Manifest a = MustSave(files, Small("a", 1));
    const Manifest b = MustSave(files, Small("b", 2, a.name()));
    MustSave(files, Small("c", 3, b.name()));
    MustSave(files, Small("d", 4));
    const Manifest e = MustSave(files, Small("e", 5));
    MustSave(files, Small("f", 6, e.name()));
  }

  // The newest first.
  std::vector<std::string> KeptForLoads() const {
    std::vector<std::string> kept;
    const auto listed = checkpoints_.ListUsable();
    for (const ListedCheckpoint& checkpoint : *listed) {
      if (checkpoint.kept_for_load) kept.push_back(checkpoint.id);
    }
    return kept;
  }
};

TEST_F(RemoveTest, TheNewestChainsAreKeptWhole) {
  SaveChains(files_);
  EXPECT_THAT(*checkpoints_.RemoveOld(3), IsEmpty());
  EXPECT_THAT(*checkpoints_.RemoveOld(2), ElementsAre("c", "b", "a"));
  EXPECT_THAT(IdsOf(*checkpoints_.List()), ElementsAre("f", "e", "d"));
  EXPECT_THAT(*checkpoints_.RemoveOld(1), ElementsAre("d"));
  EXPECT_THAT(*files_.List(kCheckpoints), ElementsAre("e", "f"));
  EXPECT_THAT(*checkpoints_.RemoveOld(1), IsEmpty());
}

TEST_F(RemoveTest, ABaseStaysAsLongAsADeltaOfItIsKept) {
  const Manifest a = SaveSmall("a", 1);
  SaveSmall("d", 4);
  SaveSmall("e", 5);
  SaveSmall("f", 6, &a);
  EXPECT_THAT(*checkpoints_.RemoveOld(1), ElementsAre("e", "d"));
  EXPECT_THAT(IdsOf(checkpoints_.Newest()->chain), ElementsAre("a", "f"));
}

TEST_F(RemoveTest, AClockThatWasSetBackDoesNotMakeTheNewestOld) {
  for (std::uint64_t round = 1; round <= 3; ++round) {
    auto checkpoint = Small("r" + std::to_string(round), round);
    checkpoint.created = 1000 - round;
    MustSave(files_, checkpoint);
  }
  EXPECT_THAT(IdsOf(checkpoints_.Newest()->chain), ElementsAre("r3"));
  EXPECT_THAT(*checkpoints_.RemoveOld(1), ElementsAre("r2", "r1"));
}

TEST_F(RemoveTest, WhatIsBrokenStays) {
  SaveChains(files_);
  Break(PathOf("b"));
  EXPECT_THAT(*checkpoints_.RemoveOld(1), ElementsAre("d", "c", "a"));
  EXPECT_THAT(IdsOf(*checkpoints_.List()), ElementsAre("f", "e", "b"));
}

TEST_F(RemoveTest, ABrokenChainDoesNotCountAsKept) {
  SaveChains(files_);
  Break(PathOf("e"));
  EXPECT_THAT(*checkpoints_.RemoveOld(1), ElementsAre("c", "b", "a"));
  EXPECT_THAT(IdsOf(checkpoints_.Newest()->chain), ElementsAre("d"));
}

TEST_F(RemoveTest, AtAnyStepOfACrashEachIsWholeOrGoneAndNoDeltaLosesItsBase) {
  bool ok = false;
  for (std::uint64_t step = 1; !ok; ++step) {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      SCOPED_TRACE("step " + std::to_string(step) + " seed " + std::to_string(seed));
      SimFiles files;
      ASSERT_TRUE(MakeCheckpointFolder(files).ok());
      SaveChains(files);
      const Checkpoints checkpoints(files, kCheckpoints);
      files.CrashAt(files.operations() + step);
      ok = checkpoints.RemoveOld(1).ok();
      files.CrashAt(0);
      files.Crash(seed);
      const auto listed = checkpoints.List();
      ASSERT_TRUE(listed.ok());
      for (const ListedCheckpoint& checkpoint : *listed) {
        EXPECT_EQ(checkpoint.why_not.message(), "");
        EXPECT_EQ(checkpoints.Verify(checkpoint.id).message(), "");
        EXPECT_EQ(checkpoints.ChainOf(checkpoint.id).status().message(), "");
      }
      EXPECT_THAT(IdsOf(checkpoints.Newest()->chain), ElementsAre("e", "f"));
      ASSERT_TRUE(checkpoints.RemoveLeftovers().ok());
      ASSERT_TRUE(checkpoints.RemoveOld(1).ok());
      EXPECT_THAT(*files.List(kCheckpoints), ElementsAre("e", "f"));
    }
    ASSERT_LT(step, 100);
  }
}

TEST_F(RemoveTest, WhatIsPinnedStaysWithItsChainUntilItIsReleased) {
  SaveChains(files_);
  ASSERT_TRUE(checkpoints_.Pin("b").ok());
  ASSERT_TRUE(checkpoints_.Pin("b").ok());
  EXPECT_THAT(*checkpoints_.RemoveOld(1), ElementsAre("d", "c"));
  EXPECT_THAT(IdsOf(*checkpoints_.ChainOf("b")), ElementsAre("a", "b"));
  const auto listed = checkpoints_.ListUsable();
  ASSERT_TRUE(listed.ok());
  for (const ListedCheckpoint& checkpoint : *listed)
    EXPECT_EQ(checkpoint.pinned, checkpoint.id == "b") << checkpoint.id;
  ASSERT_TRUE(checkpoints_.Release("b").ok());
  ASSERT_TRUE(checkpoints_.Release("b").ok());
  EXPECT_THAT(*checkpoints_.RemoveOld(1), ElementsAre("b", "a"));
}

TEST_F(RemoveTest, APinnedChainThatIsAmongTheNewestCountsAsOne) {
  SaveChains(files_);
  ASSERT_TRUE(checkpoints_.Pin("f").ok());
  EXPECT_THAT(*checkpoints_.RemoveOld(2), ElementsAre("c", "b", "a"));
}

// Loads "b", which saves a copy.
TEST_F(RemoveTest, ALoadKeepsWhatItLoadsAndWhatWasTheNewest) {
  SaveChains(files_);
  ASSERT_TRUE(checkpoints_.KeepForLoad("b", "f", "copy").ok());
  ASSERT_TRUE(checkpoints_.ForgetEarlierLoads("b", "copy").ok());
  SaveSmall("copy", 7);
  EXPECT_THAT(*checkpoints_.RemoveOld(1), ElementsAre("d", "c"));
  EXPECT_THAT(KeptForLoads(), ElementsAre("f", "b"));

  // The newest one is only a copy: what was newest before it stays.
  ASSERT_TRUE(checkpoints_.KeepForLoad("copy", "copy", "copy-2").ok());
  ASSERT_TRUE(checkpoints_.ForgetEarlierLoads("copy", "copy-2").ok());
  SaveSmall("copy-2", 8);
  EXPECT_THAT(*checkpoints_.RemoveOld(1), ElementsAre("b", "a"));
  EXPECT_THAT(KeptForLoads(), ElementsAre("copy", "f"));

  // Nobody knows a newest one: what a load has kept stays.
  ASSERT_TRUE(checkpoints_.KeepForLoad("copy-2", "", "copy-3").ok());
  ASSERT_TRUE(checkpoints_.ForgetEarlierLoads("copy-2", "copy-3").ok());
  EXPECT_THAT(KeptForLoads(), ElementsAre("copy-2", "f"));

  // A load that fails saves no copy, so the newest one is still the one before.
  ASSERT_TRUE(checkpoints_.KeepForLoad("copy-2", "copy-2", "none").ok());
  ASSERT_TRUE(checkpoints_.KeepForLoad("copy", "copy-2", "copy-3").ok());
  ASSERT_TRUE(checkpoints_.ForgetEarlierLoads("copy", "copy-3").ok());
  EXPECT_THAT(KeptForLoads(), ElementsAre("copy", "f"));

  SaveSmall("g", 9);
  ASSERT_TRUE(checkpoints_.KeepForLoad("g", "g", "copy-4").ok());
  ASSERT_TRUE(checkpoints_.ForgetEarlierLoads("g", "copy-4").ok());
  EXPECT_THAT(KeptForLoads(), ElementsAre("g"));
  EXPECT_THAT(*checkpoints_.RemoveOld(1), ElementsAre("copy-2", "copy", "f", "e"));
}

TEST_F(RemoveTest, APersonsPinIsNoLoads) {
  SaveChains(files_);
  ASSERT_TRUE(checkpoints_.Pin("f").ok());
  ASSERT_TRUE(checkpoints_.KeepForLoad("b", "f", "copy").ok());
  ASSERT_TRUE(checkpoints_.Pin("b").ok());
  EXPECT_THAT(KeptForLoads(), ElementsAre("f", "b"));
  ASSERT_TRUE(checkpoints_.ForgetEarlierLoads("d", "other").ok());
  EXPECT_THAT(KeptForLoads(), IsEmpty());
  EXPECT_THAT(*checkpoints_.RemoveOld(1), ElementsAre("d", "c"));
  ASSERT_TRUE(checkpoints_.KeepForLoad("b", "f", "copy").ok());
  ASSERT_TRUE(checkpoints_.Release("b").ok());
  EXPECT_THAT(KeptForLoads(), ElementsAre("f"));
  ASSERT_TRUE(checkpoints_.KeepForLoad("gone", "gone", "copy").ok()) << "somebody has removed the newest";
}

TEST_F(RemoveTest, ALoadKeepsItsTwoBesideAllThatArePinned) {
  for (std::uint64_t i = 0; i <= kMaxPinned + 1; ++i) SaveSmall("c" + std::to_string(i), i + 1);
  for (std::size_t i = 0; i < kMaxPinned; ++i) ASSERT_TRUE(checkpoints_.Pin("c" + std::to_string(i)).ok());
  ASSERT_TRUE(checkpoints_.KeepForLoad("c64", "c65", "copy").ok());
  EXPECT_THAT(KeptForLoads(), ElementsAre("c65", "c64"));
  EXPECT_EQ(checkpoints_.Pin("c64").code(), StatusCode::kResourceExhausted);
  ASSERT_TRUE(checkpoints_.Release("c0").ok());
  EXPECT_TRUE(checkpoints_.Pin("c64").ok());
}

// Whenever a crash comes, what the load before kept stays, or what this one keeps.
TEST_F(RemoveTest, AtAnyStepOfACrashALoadKeepsWhatWasTheNewest) {
  bool ok = false;
  for (std::uint64_t step = 1; !ok; ++step) {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      SCOPED_TRACE("step " + std::to_string(step) + " seed " + std::to_string(seed));
      SimFiles files;
      ASSERT_TRUE(MakeCheckpointFolder(files).ok());
      SaveChains(files);
      const Checkpoints checkpoints(files, kCheckpoints);
      ASSERT_TRUE(checkpoints.KeepForLoad("b", "d", "e").ok());
      files.CrashAt(files.operations() + step);
      ok = checkpoints.KeepForLoad("e", "e", "copy").ok() && checkpoints.ForgetEarlierLoads("e", "copy").ok();
      files.CrashAt(0);
      files.Crash(seed);
      ASSERT_TRUE(checkpoints.RemoveLeftovers().ok());
      ASSERT_TRUE(checkpoints.RemoveOld(1).ok());
      EXPECT_TRUE(checkpoints.CheckChain("d").ok());
      EXPECT_TRUE(checkpoints.CheckChain("f").ok());
    }
    ASSERT_LT(step, 100);
  }
}

TEST_F(RemoveTest, WhatIsNotThereIsNeitherPinnedNorReleased) {
  EXPECT_EQ(checkpoints_.Pin("a").code(), StatusCode::kNotFound);
  EXPECT_EQ(checkpoints_.Release("a").message(), "there is no checkpoint a in " + kCheckpoints);
}

TEST_F(RemoveTest, AFolderOrALinkToNothingIsNoPin) {
  const test::TemporaryFolder folder;
  const std::string pin = folder.path() + "/a/pinned";
  std::filesystem::create_directories(pin);
  const Checkpoints checkpoints(SystemFiles(), folder.path());
  for (const Status& refused : {checkpoints.Pin("a"), checkpoints.Release("a")}) {
    EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition) << refused.message();
    EXPECT_THAT(refused.message(), HasSubstr(pin));
  }
  std::filesystem::remove(pin);
  std::filesystem::create_symlink("nothing", pin);
  EXPECT_EQ(checkpoints.Pin("a").code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(checkpoints.Release("a").ok());
  EXPECT_TRUE(checkpoints.Pin("a").ok());
}

TEST_F(RemoveTest, SoManyArePinnedAndNoMore) {
  for (std::size_t i = 0; i <= kMaxPinned; ++i) SaveSmall("c" + std::to_string(i), i + 1);
  for (std::size_t i = 0; i < kMaxPinned; ++i) ASSERT_TRUE(checkpoints_.Pin("c" + std::to_string(i)).ok());
  const Status refused = checkpoints_.Pin("c" + std::to_string(kMaxPinned));
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.message(), "64 checkpoints are pinned, and at most 64 may be: release one first");
  EXPECT_TRUE(checkpoints_.Pin("c0").ok());  // it is pinned already
  ASSERT_TRUE(checkpoints_.Release("c0").ok());
  EXPECT_TRUE(checkpoints_.Pin("c" + std::to_string(kMaxPinned)).ok());
}

// Makes somebody pin `id` right before the first rename, which is that of a removal.
void PinAmidRemoval(WatchedFiles& watched, FileSystem& files, const std::string& id, Status& pinned) {
  pinned = Unavailable("nobody has asked");
  watched.before_change = [&, id](const std::string& operation, const std::string&) {
    if (operation == "rename" && pinned.code() == StatusCode::kUnavailable)
      pinned = Checkpoints(files, kCheckpoints).Pin(id);
    return Status();
  };
}

TEST_F(RemoveTest, WhatIsPinnedAsItIsToBeRemovedStaysWithItsChain) {
  SaveChains(files_);
  WatchedFiles watched(files_);
  Status pinned;
  PinAmidRemoval(watched, files_, "b", pinned);
  EXPECT_THAT(*Checkpoints(watched, kCheckpoints).RemoveOld(2), ElementsAre("c"));
  EXPECT_TRUE(pinned.ok());
  EXPECT_THAT(IdsOf(*checkpoints_.ChainOf("b")), ElementsAre("a", "b"));
}

TEST_F(RemoveTest, AtAnyStepOfACrashWhatWasPinnedInTimeIsThere) {
  bool ok = false;
  for (std::uint64_t step = 1; !ok; ++step) {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      SCOPED_TRACE("step " + std::to_string(step) + " seed " + std::to_string(seed));
      SimFiles files;
      ASSERT_TRUE(MakeCheckpointFolder(files).ok());
      SaveChains(files);
      files.CrashAt(files.operations() + step);
      WatchedFiles watched(files);
      Status pinned;
      PinAmidRemoval(watched, files, "b", pinned);
      ok = Checkpoints(watched, kCheckpoints).RemoveOld(2).ok();
      files.CrashAt(0);
      files.Crash(seed);
      const Checkpoints checkpoints(files, kCheckpoints);
      ASSERT_TRUE(checkpoints.RemoveLeftovers().ok());
      if (!pinned.ok()) continue;
      EXPECT_THAT(IdsOf(*checkpoints.ChainOf("b")), ElementsAre("a", "b"));
      EXPECT_TRUE(checkpoints.Verify("b").ok());
      ASSERT_TRUE(checkpoints.RemoveOld(1).ok());
      EXPECT_TRUE(checkpoints.ChainOf("b").ok());
    }
    ASSERT_LT(step, 100);
  }
}

TEST_F(RemoveTest, LeftoversAreWhatWritersAndRemoversLeft) {
  SaveSmall("a", 1);
  for (const std::string name : {".b.partial", ".c.removed", ".mine", "d.partial", ".b.partial/table-1"})
    ASSERT_TRUE(files_.MakeFolder(kCheckpoints + "/" + name).ok());
  ASSERT_TRUE(files_.Create(kCheckpoints + "/.b.partial/table-1/rank-0.keys.npy").ok());
  ASSERT_TRUE(checkpoints_.RemoveLeftovers().ok());
  EXPECT_THAT(*files_.List(kCheckpoints), ElementsAre(".mine", "a", "d.partial"));
}

}  // namespace
}  // namespace slotwise
