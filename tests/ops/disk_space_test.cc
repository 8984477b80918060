// Tests the reading of a file system's free space.
#include "server/ops/disk_space.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>

namespace slotwise {
namespace {

TEST(DiskSpaceTest, SaysWhatTheFileSystemHas) {
  const std::filesystem::path folder = testing::TempDir();
  const DiskSpace space(folder);
  const std::optional<DiskSpace::Reading> reading = space.Read();
  ASSERT_TRUE(reading);
  EXPECT_EQ(reading->bytes, std::filesystem::space(folder).capacity);
  EXPECT_LE(reading->free_bytes, reading->bytes);
}

TEST(DiskSpaceTest, SaysNothingOfAFolderThatIsNotThere) { EXPECT_FALSE(DiskSpace("/no/such/folder").Read()); }

}  // namespace
}  // namespace slotwise
