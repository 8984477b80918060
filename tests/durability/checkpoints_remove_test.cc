// Tests which checkpoints may be removed, and that they are removed whole.
#include <gmock/gmock.h>

#include <filesystem>

#include "tests/durability/checkpoints_rig.h"
#include "tests/durability/watched_files.h"
#include "tests/support/status.h"
#include "tests/support/temporary_folder.h"

namespace slotwise {
namespace {

using ::testing::ElementsAre;
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

  // Saves c0, c1 and so on, and pins all but the last ones.
  void PinAsManyAsMayBe(std::size_t but) {
    for (std::size_t i = 0; i < kMaxPinned + but; ++i) SaveSmall("c" + std::to_string(i), i + 1);
    for (std::size_t i = 0; i < kMaxPinned; ++i) ASSERT_TRUE(checkpoints_.Pin("c" + std::to_string(i)).ok());
  }

  // Loads `id` while `newest` is the newest, and saves the copy under a name.
  void Load(const std::string& id, const std::string& newest, const std::string& copy) {
    ASSERT_TRUE(checkpoints_.KeepForLoad(id, newest, copy).ok());
    ASSERT_TRUE(checkpoints_.ForgetEarlierLoads(id, copy).ok());
  }

  // The newest first.
  std::vector<std::string> KeptForLoads() const {
    std::vector<std::string> kept;
    for (const ListedCheckpoint& checkpoint : test::Must(checkpoints_.ListUsable())) {
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
  CrashAtAnyStep(
      10, SaveChains, [](SimFiles& files) { return Checkpoints(files, kCheckpoints).RemoveOld(1).ok(); },
      [](SimFiles& files, bool) {
        const Checkpoints checkpoints(files, kCheckpoints);
        for (const ListedCheckpoint& checkpoint : test::Must(checkpoints.List())) {
          EXPECT_EQ(checkpoint.why_not.message(), "");
          EXPECT_EQ(checkpoints.Verify(checkpoint.id).message(), "");
          EXPECT_EQ(checkpoints.ChainOf(checkpoint.id).status().message(), "");
        }
        EXPECT_THAT(IdsOf(checkpoints.Newest()->chain), ElementsAre("e", "f"));
        ASSERT_TRUE(checkpoints.RemoveLeftovers().ok());
        ASSERT_TRUE(checkpoints.RemoveOld(1).ok());
        EXPECT_THAT(*files.List(kCheckpoints), ElementsAre("e", "f"));
      });
}

TEST_F(RemoveTest, WhatIsPinnedStaysWithItsChainUntilItIsReleased) {
  SaveChains(files_);
  ASSERT_TRUE(checkpoints_.Pin("b").ok());
  ASSERT_TRUE(checkpoints_.Pin("b").ok());
  EXPECT_THAT(*checkpoints_.RemoveOld(1), ElementsAre("d", "c"));
  EXPECT_THAT(IdsOf(*checkpoints_.ChainOf("b")), ElementsAre("a", "b"));
  for (const ListedCheckpoint& checkpoint : test::Must(checkpoints_.ListUsable()))
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
  Load("b", "f", "copy");
  SaveSmall("copy", 7);
  EXPECT_THAT(*checkpoints_.RemoveOld(1), ElementsAre("d", "c"));
  EXPECT_THAT(KeptForLoads(), ElementsAre("f", "b"));

  // The newest one is only a copy: what was newest before it stays.
  Load("copy", "copy", "copy-2");
  SaveSmall("copy-2", 8);
  EXPECT_THAT(*checkpoints_.RemoveOld(1), ElementsAre("b", "a"));
  EXPECT_THAT(KeptForLoads(), ElementsAre("copy", "f"));

  // No newest one is known: what a load has kept stays.
  Load("copy-2", "", "copy-3");
  EXPECT_THAT(KeptForLoads(), ElementsAre("copy-2", "f"));

  // A load that fails saves no copy, so the newest one is still the one before.
  ASSERT_TRUE(checkpoints_.KeepForLoad("copy-2", "copy-2", "none").ok());
  Load("copy", "copy-2", "copy-3");
  EXPECT_THAT(KeptForLoads(), ElementsAre("copy", "f"));

  SaveSmall("g", 9);
  Load("g", "g", "copy-4");
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
  PinAsManyAsMayBe(2);
  ASSERT_TRUE(checkpoints_.KeepForLoad("c64", "c65", "copy").ok());
  EXPECT_THAT(KeptForLoads(), ElementsAre("c65", "c64"));
  EXPECT_EQ(checkpoints_.Pin("c64").code(), StatusCode::kResourceExhausted);
  ASSERT_TRUE(checkpoints_.Release("c0").ok());
  EXPECT_TRUE(checkpoints_.Pin("c64").ok());
}

// Whenever a crash comes, what the load before kept stays, or what this one keeps.
TEST_F(RemoveTest, AtAnyStepOfACrashALoadKeepsWhatWasTheNewest) {
  CrashAtAnyStep(
      10,
      [](SimFiles& files) {
        SaveChains(files);
        ASSERT_TRUE(Checkpoints(files, kCheckpoints).KeepForLoad("b", "d", "e").ok());
      },
      [](SimFiles& files) {
        const Checkpoints checkpoints(files, kCheckpoints);
        return checkpoints.KeepForLoad("e", "e", "copy").ok() &&
               checkpoints.ForgetEarlierLoads("e", "copy").ok();
      },
      [](SimFiles& files, bool) {
        const Checkpoints checkpoints(files, kCheckpoints);
        ASSERT_TRUE(checkpoints.RemoveLeftovers().ok());
        ASSERT_TRUE(checkpoints.RemoveOld(1).ok());
        EXPECT_TRUE(checkpoints.CheckChain("d").ok());
        EXPECT_TRUE(checkpoints.CheckChain("f").ok());
      });
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
    test::ExpectStatus(refused, StatusCode::kFailedPrecondition, pin);
  }
  std::filesystem::remove(pin);
  std::filesystem::create_symlink("nothing", pin);
  EXPECT_EQ(checkpoints.Pin("a").code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(checkpoints.Release("a").ok());
  EXPECT_TRUE(checkpoints.Pin("a").ok());
}

TEST_F(RemoveTest, SoManyArePinnedAndNoMore) {
  PinAsManyAsMayBe(1);
  const Status refused = checkpoints_.Pin("c" + std::to_string(kMaxPinned));
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.message(), "64 checkpoints are pinned, and at most 64 may be: release one first");
  EXPECT_TRUE(checkpoints_.Pin("c0").ok());  // it is pinned already
  ASSERT_TRUE(checkpoints_.Release("c0").ok());
  EXPECT_TRUE(checkpoints_.Pin("c" + std::to_string(kMaxPinned)).ok());
}

// Makes somebody pin `id` right before the first rename, which is that of a removal.
void PinAmidRemoval(WatchedFiles& watched, FileSystem& files, const std::string& id, Status& pinned) {
  pinned = Unavailable("not asked yet");
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
  Status pinned;
  CrashAtAnyStep(
      10, SaveChains,
      [&](SimFiles& files) {
        WatchedFiles watched(files);
        PinAmidRemoval(watched, files, "b", pinned);
        return Checkpoints(watched, kCheckpoints).RemoveOld(2).ok();
      },
      [&](SimFiles& files, bool) {
        const Checkpoints checkpoints(files, kCheckpoints);
        ASSERT_TRUE(checkpoints.RemoveLeftovers().ok());
        if (!pinned.ok()) return;
        EXPECT_THAT(IdsOf(*checkpoints.ChainOf("b")), ElementsAre("a", "b"));
        EXPECT_TRUE(checkpoints.Verify("b").ok());
        ASSERT_TRUE(checkpoints.RemoveOld(1).ok());
        EXPECT_TRUE(checkpoints.ChainOf("b").ok());
      });
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
