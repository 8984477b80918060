// A checkpoint with a damaged file is refused, and the message names the file.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>

#include "tests/durability/checkpoint_rig.h"
#include "tests/support/status.h"

namespace slotwise {
namespace {

using ::testing::HasSubstr;

// Reads and verifies everything there is. A checkpoint that was damaged has to be refused somewhere.
Status ReadEverything(FileSystem& files, const std::string& id) {
  const Checkpoints checkpoints(files, kCheckpoints);
  const auto chain = checkpoints.ChainOf(id);
  if (!chain.ok()) return chain.status();
  for (const TableEntry& table : chain->back().tables) {
    const auto rows = ReadAll(files, *chain, Value(table.id));
    if (!rows.ok()) return rows.status();
  }
  return ReadLedger(files, kCheckpoints, *chain).status();
}

class DamageTest : public CheckpointTest {
 protected:
  DamageTest() {
    MustSave(files_, TwoTables("a", 1));
    auto newer = TwoTables("b", 2);
    newer.tables[1].type = DataType::kFloat16;
    MustSave(files_, newer);
    auto delta = TwoTables("c", 3);
    delta.parent = Checkpoints(files_, kCheckpoints).ChainOf("b")->front().name();
    delta.tables[1].type = DataType::kFloat16;
    for (std::uint64_t i = 1000; i < 1300; ++i) delta.tables[0].erased.insert(KeyAt(i));
    for (std::uint64_t i = 51; i < 60; ++i) delta.tables[1].erased.insert(KeyAt(i));
    MustSave(files_, delta);
  }

  void ExpectRefused(const std::string& path, const std::string& how) {
    SCOPED_TRACE(path + " " + how);
    const std::string id = path.substr(kCheckpoints.size() + 1, 1);
    test::ExpectStatus(ReadEverything(files_, id), StatusCode::kFailedPrecondition, path);
    test::ExpectStatus(Checkpoints(files_, kCheckpoints).Verify(id), StatusCode::kFailedPrecondition, path);
  }

  std::vector<std::string> Paths() {
    auto paths = FilesBelow(files_, kCheckpoints + "/b");
    const auto more = FilesBelow(files_, kCheckpoints + "/c");
    paths.insert(paths.end(), more.begin(), more.end());
    return paths;
  }
};

TEST_F(DamageTest, NothingIsRefusedOfWhatIsWhole) {
  for (const std::string id : {"a", "b", "c"}) {
    EXPECT_EQ(ReadEverything(files_, id).message(), "");
    EXPECT_EQ(Checkpoints(files_, kCheckpoints).Verify(id).message(), "");
  }
  // 2 ranks; the first table has 4 files, the second 3; a delta two more of each.
  EXPECT_EQ(Paths().size(), 2 + 2 * (4 + 3) + 2 + 2 * (6 + 5));
}

TEST_F(DamageTest, RefusesAndNamesEveryFileThatIsMissingCutOrTooLong) {
  for (const std::string& path : Paths()) {
    const Bytes whole = files_.Contents(path);
    ASSERT_TRUE(files_.Remove(path).ok());
    ExpectRefused(path, "is missing");
    for (const std::size_t bytes : {std::size_t{0}, whole.size() / 2, whole.size() - 1, whole.size() + 1}) {
      Bytes other = whole;
      other.resize(bytes);
      files_.SetContents(path, other);
      ExpectRefused(path, "has " + std::to_string(bytes) + " bytes");
    }
    files_.SetContents(path, whole);
  }
  EXPECT_TRUE(ReadEverything(files_, "c").ok());
}

TEST_F(DamageTest, RefusesAndNamesEveryFileOfWhichABitIsAnother) {
  for (const std::string& path : Paths()) {
    const Bytes whole = files_.Contents(path);
    // A place in each block, and the last byte.
    std::vector<std::size_t> places = {whole.size() - 1};
    for (std::size_t at = 0; at < whole.size(); at += kSmallBlocks)
      places.push_back(std::min<std::size_t>(at + Mix(at) % kSmallBlocks, whole.size() - 1));
    for (const std::size_t place : places) {
      Bytes other = whole;
      other[place] ^= std::byte{1} << (place % 8);
      files_.SetContents(path, other);
      ExpectRefused(path, "differs at " + std::to_string(place));
    }
    files_.SetContents(path, whole);
  }
}

TEST_F(DamageTest, RefusesAndNamesEveryFileThatIsAnOlderCheckpoints) {
  for (const std::string& path : FilesBelow(files_, kCheckpoints + "/b")) {
    const Bytes whole = files_.Contents(path);
    const Bytes older = files_.Contents(kCheckpoints + "/a" + path.substr(kCheckpoints.size() + 2));
    if (older == whole) continue;  // equal keys make equal files
    files_.SetContents(path, older);
    ExpectRefused(path, "is that of the checkpoint before");
    files_.SetContents(path, whole);
  }
}

TEST_F(DamageTest, RefusesStartsThatFallOrEndElsewhereOrHaveForeignBuckets) {
  const std::string path = kCheckpoints + "/a/table-1/rank-0.starts.npy";
  const Bytes whole = files_.Contents(path);
  const auto forge = [&](std::uint32_t bucket, std::int64_t by) {
    Manifest manifest = Checkpoints(files_, kCheckpoints).ChainOf("a")->front();
    Bytes bytes = whole;
    for (std::uint32_t b = bucket; b <= (by > 0 ? bucket : kBucketCount); ++b) {
      std::int64_t start = 0;
      std::memcpy(&start, &bytes[128 + b * 8], 8);
      start += by;
      std::memcpy(&bytes[128 + b * 8], &start, 8);
    }
    Forge(files_, manifest, manifest.tables[0].ranks[0].files[1], path, bytes);
    const Status status = ReadEverything(files_, "a");
    test::ExpectStatus(status, StatusCode::kFailedPrecondition, path);
    return status.message();
  };
  EXPECT_THAT(forge(0, 1), HasSubstr("does not rise from 0 to"));
  EXPECT_THAT(forge(100, 100000), HasSubstr("does not rise from 0 to"));
  EXPECT_THAT(forge(4096, -1), HasSubstr("does not rise from 0 to"));
  EXPECT_THAT(forge(4096, 1), HasSubstr("does not rise from 0 to"));
  // The last key goes to the last bucket, which is rank 1's.
  Bytes bytes = whole;
  std::uint64_t rows = 0;
  std::memcpy(&rows, &whole[128 + 4096 * 8], 8);
  const std::uint64_t fewer = rows - 1;
  for (std::uint32_t bucket = 0; bucket < kBucketCount; ++bucket) {
    std::uint64_t start = 0;
    std::memcpy(&start, &bytes[128 + bucket * 8], 8);
    if (start == rows) std::memcpy(&bytes[128 + bucket * 8], &fewer, 8);
  }
  Manifest manifest = Checkpoints(files_, kCheckpoints).ChainOf("a")->front();
  Forge(files_, manifest, manifest.tables[0].ranks[0].files[1], path, bytes);
  EXPECT_THAT(ReadEverything(files_, "a").message(),
              HasSubstr("has keys of bucket 4095, which rank 1 owned"));
}

}  // namespace
}  // namespace slotwise
