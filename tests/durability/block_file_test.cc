// Tests when a streamed file goes to disk, is read ahead, and leaves the page cache.
#include "server/durability/block_file.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/durability/checkpoint_rig.h"
#include "tests/durability/watched_files.h"
#include "tests/support/status.h"

namespace slotwise {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class BlockFileTest : public ::testing::Test {
 protected:
  BlockFileTest() { EXPECT_TRUE(files_.MakeFolder("f").ok()); }

  Result<FileEntry> WriteFile(const std::string& name, std::uint64_t mebibytes) {
    auto writer = BlockWriter::Create(watched_, "f", name);
    if (!writer.ok()) return writer.status();
    for (std::uint64_t i = 0; i < mebibytes; ++i) {
      if (Status status = writer->Append(std::vector(kMiB, std::byte{static_cast<unsigned char>(i)}));
          !status.ok())
        return status;
      written_.push_back(watched_.begun["f/" + name]);
    }
    if (Status status = writer->BeginFinish(); !status.ok()) return status;
    return writer->Finish();
  }

  SimFiles files_;
  WatchedFiles watched_{files_};
  std::vector<std::uint64_t> written_;  // bytes that had begun to go to disk after each MiB
};

TEST_F(BlockFileTest, WhatIsWrittenBeginsToGoToDiskWhileMoreIsWritten) {
  ASSERT_TRUE(WriteFile("a", 40).ok());
  for (std::size_t i = 0; i < written_.size(); ++i) EXPECT_LT((i + 1) * kMiB - written_[i], 8 * kMiB) << i;
  EXPECT_EQ(watched_.begun["f/a"], 40 * kMiB);  // each byte once: a gap would have stopped it
}

TEST_F(BlockFileTest, AFileBeginsToGoToDiskWholeBeforeItIsSynced) {
  watched_.before_change = [this](const std::string& operation, const std::string& path) {
    if (operation == "sync") {
      EXPECT_EQ(watched_.begun[path], 3 * kMiB);
    }
    return Status();
  };
  auto writer = BlockWriter::Create(watched_, "f", "a");
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->Append(std::vector(3 * kMiB - 1, std::byte{1})).ok());
  ASSERT_TRUE(writer->Append(std::vector(1, std::byte{2})).ok());  // stays in the writer's buffer
  ASSERT_TRUE(writer->BeginFinish().ok());
  const auto entry = test::Must(writer->Finish());
  EXPECT_EQ(entry.bytes, 3 * kMiB);
  EXPECT_EQ(test::Must(ReadWhole(files_, "f", entry)).back(), std::byte{2});
}

TEST_F(BlockFileTest, AnErrorOnTheWayToDiskIsTheWritersError) {
  watched_.before_change = [](const std::string& operation, const std::string&) {
    return operation == "begin sync" ? Unavailable("the disk is broken") : Status();
  };
  EXPECT_EQ(WriteFile("a", 10).status().code(), StatusCode::kUnavailable);  // while it is written
  EXPECT_LT(written_.size(), 9);
  EXPECT_EQ(WriteFile("b", 1).status().code(), StatusCode::kUnavailable);  // in the end
}

TEST_F(BlockFileTest, WhatWasSyncedAndWhatWasVerifiedLeavesTheSystemsMemory) {
  watched_.before_change = [this](const std::string& operation, const std::string&) {
    if (operation == "sync") {
      EXPECT_THAT(watched_.dropped, ::testing::IsEmpty());  // too early: dirty pages stay
    }
    return Status();
  };
  const auto entry = test::Must(WriteFile("a", 1));
  EXPECT_THAT(watched_.dropped, ::testing::ElementsAre("f/a"));
  watched_.dropped.clear();
  EXPECT_TRUE(test::Must(BlockReader::Open(watched_, "f", entry)).Verify().ok());
  EXPECT_EQ(watched_.dropped_up_to["f/a"], entry.bytes);
}

// So a file system can write them past the system's memory, while the next ones are filled.
TEST_F(BlockFileTest, ALargeFileIsWrittenInAlignedPiecesFromAFewPlaces) {
  const auto entry = test::Must(WriteFile("a", 100));
  const auto& pieces = watched_.later["f/a"];
  constexpr std::size_t kPlaces = WritableFile::kPiecesLater + 1;
  ASSERT_EQ(pieces.size(), 8);  // of 100 MiB, the first 32 are written otherwise, and so is the end
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_EQ(pieces[i].size(), 8 * kMiB);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pieces[i].data()) % 4096, 0U);
    EXPECT_EQ(pieces[i].data(), pieces[i % kPlaces].data());
    for (std::size_t other = i - std::min(i, kPlaces - 1); other < i; ++other) {
      EXPECT_NE(pieces[i].data(), pieces[other].data());  // which may be on its way still
    }
  }
  EXPECT_EQ(watched_.begun["f/a"], 100 * kMiB);
}

TEST_F(BlockFileTest, AFailedPieceIsTheWritersError) {
  watched_.before_change = [](const std::string& operation, const std::string&) {
    return operation == "write later" ? Unavailable("the disk is gone") : Status();
  };
  EXPECT_EQ(WriteFile("a", 60).status().message(), "the disk is gone");
}

TEST_F(BlockFileTest, WhatWasReadOnIsDroppedBehindTheReader) {
  const auto entry = test::Must(WriteFile("a", 70));
  auto reader = BlockReader::Open(watched_, "f", entry);
  ASSERT_TRUE(reader.ok());
  std::vector<std::byte> bytes(kMiB);
  for (std::uint64_t i = 0; i < 70; ++i) {
    ASSERT_TRUE(reader->ReadOn(i * kMiB, bytes).ok());
    EXPECT_EQ(watched_.dropped_up_to["f/a"], i / 16 * kBlockBytes) << i;
  }
  // Nothing is dropped that somebody else reads: a reader that begins in the middle drops from there on.
  watched_.dropped_up_to.clear();
  ASSERT_TRUE(reader->ReadOn(kBlockBytes, bytes).ok());
  EXPECT_EQ(watched_.dropped_up_to["f/a"], 0);
}

TEST_F(BlockFileTest, AReaderHasTheNextBlocksReadWhileItVerifiesOne) {
  const auto entry = test::Must(WriteFile("a", 70));
  auto reader = test::Must(BlockReader::Open(watched_, "f", entry));
  std::byte byte{};
  ASSERT_TRUE(reader.Read(0, {&byte, 1}).ok());
  EXPECT_EQ(watched_.read_ahead["f/a"], 3 * kBlockBytes);
  ASSERT_TRUE(reader.Read(kBlockBytes, {&byte, 1}).ok());
  EXPECT_EQ(watched_.read_ahead["f/a"], 4 * kBlockBytes);
  EXPECT_EQ(byte, std::byte{16});
}

// A file of three blocks of 8 bytes and one of 4: 0, 1, 2 ...
class ReadOnTest : public BlockFileTest {
 protected:
  ReadOnTest() {
    auto writer = BlockWriter::Create(watched_, "f", "a", 8);
    for (unsigned char i = 0; i < 28; ++i) bytes_.push_back(std::byte{i});
    EXPECT_TRUE(writer->Append(bytes_).ok());
    entry_ = *writer->Finish();
    auto reader = test::Must(BlockReader::Open(watched_, "f", entry_));
    reader_.emplace(std::move(reader));
  }

  void Damage(std::uint64_t offset) {
    auto file = test::Must(files_.OpenToWrite("f/a"));
    const std::byte other{0xFF};
    ASSERT_TRUE(file->WriteAt(offset, std::array{std::span(&other, 1)}).ok());
  }

  Status ReadOn(std::uint64_t offset, std::size_t count) {
    read_.resize(count);
    const Status status = reader_->ReadOn(offset, read_);
    if (status.ok()) {
      EXPECT_TRUE(std::ranges::equal(read_, std::span(bytes_).subspan(offset, count)));
    }
    return status;
  }

  std::vector<std::byte> bytes_;
  std::vector<std::byte> read_;
  FileEntry entry_;
  std::optional<BlockReader> reader_;
};

TEST_F(ReadOnTest, PiecesOfAnySizeAreWhatWasWrittenAndEachByteIsReadOnce) {
  watched_.bytes_read = 0;
  std::uint64_t offset = 0;
  for (const std::size_t count : {3, 1, 12, 0, 9, 3}) {
    ASSERT_TRUE(ReadOn(offset, count).ok());
    offset += count;
  }
  EXPECT_TRUE(reader_->Settle().ok());
  EXPECT_EQ(watched_.bytes_read, 28);
}

TEST_F(ReadOnTest, FromTheMiddleOfABlockItReadsTheBlockAsReadDoes) {
  Damage(2);
  EXPECT_EQ(ReadOn(5, 4).code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(ReadOn(9, 3).ok());
  EXPECT_TRUE(ReadOn(12, 10).ok());
  EXPECT_TRUE(reader_->Settle().ok());
}

TEST_F(ReadOnTest, DamageIsFoundAtTheEndOfItsBlock) {
  Damage(9);
  EXPECT_TRUE(reader_->ReadOn(8, std::span(read_ = std::vector<std::byte>(7))).ok());
  const Status found = reader_->ReadOn(15, std::span(read_ = std::vector<std::byte>(3)));
  EXPECT_EQ(found.message(), "f/a is damaged: bytes 8 to 16 are not those that were written");
}

TEST_F(ReadOnTest, SettlingFindsDamageBehindWhatWasRead) {
  Damage(27);
  EXPECT_TRUE(ReadOn(16, 9).ok());
  EXPECT_EQ(reader_->Settle().code(), StatusCode::kFailedPrecondition);
}

TEST_F(ReadOnTest, WhoGoesElsewhereHasSettledBefore) {
  Damage(23);
  EXPECT_TRUE(ReadOn(16, 2).ok());
  EXPECT_EQ(ReadOn(0, 2).code(), StatusCode::kFailedPrecondition);
}

TEST_F(ReadOnTest, VerifyingReadsAllAndFindsDamageAnywhere) {
  for (const std::uint64_t offset : {0, 7, 8, 24, 27}) {
    Damage(offset);
    EXPECT_EQ(reader_->Verify().code(), StatusCode::kFailedPrecondition) << offset;
    auto file = files_.OpenToWrite("f/a");
    ASSERT_TRUE((*file)->WriteAt(offset, std::array{std::span<const std::byte>(&bytes_[offset], 1)}).ok());
    EXPECT_TRUE(reader_->Verify().ok()) << offset;
  }
}

using TwoFilesTest = CheckpointTest;

TEST_F(TwoFilesTest, AllOfATablesFilesBeginToGoToDiskBeforeTheFirstIsSynced) {
  WatchedFiles watched(files_);
  bool synced = false;
  std::vector<std::string> late;
  watched.before_change = [&](const std::string& operation, const std::string& path) {
    const bool of_table = path.find("/table-") != std::string::npos;
    if (of_table && operation == "sync") synced = true;
    if (of_table && operation == "sync folder") synced = false;  // the table is done
    if (of_table && operation == "begin sync" && synced) late.push_back(path);
    return Status();
  };
  CheckpointOfTest checkpoint = TwoTables("a", 1);
  Manifest manifest = BareManifest(checkpoint);
  ASSERT_TRUE(WriteRank(watched, checkpoint, 0, manifest).ok());
  // What a file has begun already is not begun again, so that nothing waits for it twice.
  EXPECT_THAT(late, ::testing::IsEmpty());
  EXPECT_EQ(watched.begun.size(), 7);  // keys, starts and rows of both tables, and state of one
}

}  // namespace
}  // namespace slotwise
