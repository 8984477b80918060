// One program holds a folder, and notices when another file has taken the place of the locked file.
#include "server/durability/folder_lock.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tests/support/status.h"
#include "tests/support/temporary_folder.h"

namespace slotwise {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class FolderLockTest : public ::testing::Test {
 protected:
  FolderLockTest() { fs::create_directory(folder_); }

  Result<FolderLock> Take() const { return FolderLock::Take(folder_.string(), "server.lock", "a server"); }
  fs::path path() const { return folder_ / "server.lock"; }

  static void ExpectLost(const FolderLock& lock, const fs::path& path) {
    test::ExpectStatus(lock.StillHeld(), StatusCode::kFailedPrecondition, path.string(),
                       "another server may use the folder");
  }

  const test::TemporaryFolder temporary_;
  const fs::path top_ = temporary_.path();
  const fs::path folder_ = top_ / "data";
};

TEST_F(FolderLockTest, IsHeldByOne) {
  const auto lock = test::Must(Take());
  EXPECT_TRUE(lock.StillHeld().ok());
  EXPECT_EQ(Take().status().code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(lock.StillHeld().ok());
}

TEST_F(FolderLockTest, IsSeenFromOutsideAsLongAsItIsHeld) {
  const auto is_held = [this] { return FolderLock::IsHeld(folder_.string(), "server.lock"); };
  EXPECT_FALSE(is_held()) << "there is no such file";
  {
    const auto lock = test::Must(Take());
    EXPECT_TRUE(is_held());
    EXPECT_TRUE(is_held());
  }
  EXPECT_FALSE(is_held()) << "the file stays";
  EXPECT_TRUE(Take().ok()) << "who looks keeps nothing";
}

TEST_F(FolderLockTest, IsNoFifoAndNoFolder) {
  ASSERT_EQ(mkfifo(path().c_str(), 0600), 0);
  test::ExpectStatus(Take().status(), StatusCode::kUnavailable, path().string());
  fs::remove(path());
  fs::create_directory(path());
  EXPECT_THAT(Take().status().message(), HasSubstr(path().string()));
}

TEST_F(FolderLockTest, IsLostWithItsFile) {
  const auto lock = Take();
  fs::remove(path());
  ExpectLost(*lock, path());
  const auto second = test::Must(Take());
  ExpectLost(*lock, path());
  EXPECT_TRUE(second.StillHeld().ok());
}

TEST_F(FolderLockTest, IsLostIfItsFileIsReplaced) {
  const auto lock = Take();
  std::ofstream(folder_ / "other") << "x";
  fs::rename(folder_ / "other", path());
  ExpectLost(*lock, path());
}

TEST_F(FolderLockTest, IsLostIfACopyTakesTheFoldersPlace) {
  const auto lock = Take();
  fs::rename(folder_, top_ / "moved");
  ExpectLost(*lock, path());
  fs::copy(top_ / "moved", folder_, fs::copy_options::recursive);
  ExpectLost(*lock, path());
  fs::remove_all(folder_);
  fs::create_directory_symlink(top_ / "moved", folder_);  // the same folder by another way
  EXPECT_TRUE(lock->StillHeld().ok());
}

}  // namespace
}  // namespace slotwise
