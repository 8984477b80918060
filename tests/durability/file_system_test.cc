// Tests what the system's files and the simulated ones have in common, and how the simulated ones forget.
#include "server/durability/file_system.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/durability/aligned_memory.h"
#include "server/durability/folder_lock.h"
#include "tests/durability/journal_rig.h"
#include "tests/durability/sim_files.h"
#include "tests/support/status.h"
#include "tests/support/temporary_folder.h"

namespace slotwise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

Bytes BytesOf(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

Status Write(WritableFile& file, std::uint64_t offset, std::string_view text) {
  const std::span<const std::byte> piece = std::as_bytes(std::span(text));
  return file.WriteAt(offset, std::span(&piece, 1));
}

std::string Read(FileSystem& files, const std::string& path) {
  auto file = files.Open(path);
  if (!file.ok()) return file.status().message();
  std::string text((*file)->size(), '?');
  EXPECT_TRUE((*file)->ReadAt(0, std::as_writable_bytes(std::span(text))).ok());
  return text;
}

enum class Kind { kSystem, kSimulated };

class FileSystemTest : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    if (GetParam() == Kind::kSimulated) {
      EXPECT_TRUE(simulated_.MakeFolder("files").ok());
      folder_ = "files";
      return;
    }
    folder_ = temporary_.path() + "/files";
    EXPECT_TRUE(SystemFiles().MakeFolder(folder_).ok());
  }
  void TearDown() override { EXPECT_TRUE(files().RemoveFolder(folder_).ok()); }

  FileSystem& files() { return GetParam() == Kind::kSystem ? SystemFiles() : simulated_; }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  std::unique_ptr<WritableFile> Create(const std::string& name) {
    return test::Must(files().Create(Path(name)));
  }

  const test::TemporaryFolder temporary_;
  SimFiles simulated_;
  std::string folder_;
};

TEST_P(FileSystemTest, PiecesAreWrittenOneBehindTheOther) {
  auto file = Create("a");
  std::vector<std::span<const std::byte>> pieces;
  std::string text;
  std::vector<Bytes> owned;
  for (int i = 0; i < 3000; ++i)
    owned.push_back(BytesOf(std::string(i % 3, static_cast<char>('a' + i % 26))));
  for (const Bytes& bytes : owned) {
    pieces.emplace_back(bytes);
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  EXPECT_TRUE(file->WriteAt(5, pieces).ok());
  EXPECT_TRUE(file->Sync().ok());
  EXPECT_EQ(Read(files(), Path("a")), std::string(5, '\0') + text);
}

TEST_P(FileSystemTest, ReservedBytesAreZeroAndKeepWhatIsThere) {
  auto file = Create("a");
  EXPECT_TRUE(Write(*file, 0, "abc").ok());
  EXPECT_TRUE(file->Reserve(6).ok());
  EXPECT_EQ(Read(files(), Path("a")), std::string("abc\0\0\0", 6));
  EXPECT_TRUE(file->Reserve(2).ok());
  EXPECT_EQ(Read(files(), Path("a")).size(), 6);
  EXPECT_TRUE(file->Truncate(2).ok());
  EXPECT_EQ(Read(files(), Path("a")), "ab");
  EXPECT_TRUE(file->Truncate(4).ok());
  EXPECT_EQ(Read(files(), Path("a")), std::string("ab\0\0", 4));
}

TEST_P(FileSystemTest, WhatIsBegunReadAheadOrDroppedIsStillThere) {
  auto file = Create("a");
  const std::string text(100'000, 'x');
  EXPECT_TRUE(Write(*file, 0, text).ok());
  EXPECT_TRUE(file->BeginSync(0, 50'000).ok());
  EXPECT_TRUE(file->BeginSync(50'000, 50'000).ok());  // nothing
  file->DropFromMemory();                             // not on disk yet
  EXPECT_TRUE(file->BeginSync(50'000, 100'000).ok());
  EXPECT_TRUE(file->Sync().ok());
  file->DropFromMemory();
  const auto opened = test::Must(files().Open(Path("a")));
  opened->ReadAhead(50'000, 1'000'000);  // behind the end
  opened->ReadAhead(200'000, 300'000);
  EXPECT_EQ(Read(files(), Path("a")), text);
  opened->DropFromMemory(50'000, 1'000'000);
  opened->DropFromMemory(200'000, 300'000);
  EXPECT_EQ(Read(files(), Path("a")), text);
}

// Large enough to be read past the system's memory, and no multiple of what a disk takes.
std::string LargeText() {
  std::string text((std::size_t{21} << 20) + 123, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>((i * 2'654'435'761U) >> 17);
  return text;
}

TEST_P(FileSystemTest, ALargeFileIsReadAheadFromAnyPlaceInAnyOrder) {
  const std::string text = LargeText();
  ASSERT_TRUE(Write(*Create("a"), 0, text).ok());
  constexpr std::uint64_t kSeed = 5;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937_64 random(kSeed);
  // More readers than are read past the system's memory at a time.
  std::vector<std::unique_ptr<ReadableFile>> readers;
  for (int r = 0; r < 10; ++r) {
    auto opened = test::Must(files().Open(Path("a")));
    readers.push_back(std::move(opened));
  }
  std::vector<std::uint64_t> asked(readers.size());
  std::vector<std::uint64_t> read(readers.size());
  std::string bytes;
  for (int i = 0; i < 600; ++i) {
    const std::size_t r = random() % readers.size();
    if (random() % 8 == 0) read[r] = random() % text.size();                       // goes elsewhere
    if (random() % 8 == 0) asked[r] = random() % text.size();                      // asks for another part
    if (random() % 4 == 0) readers[r]->ReadAhead(asked[r], asked[r] + 9'000'000);  // maybe once more
    if (random() % 4 == 0) {
      const std::uint64_t begin = asked[r];
      asked[r] += 3'000'000;
      readers[r]->ReadAhead(begin, asked[r]);
    }
    bytes.resize(std::min<std::uint64_t>(random() % 1'000'000, text.size() - read[r]));
    const Status status = readers[r]->ReadAt(read[r], std::as_writable_bytes(std::span(bytes)));
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_EQ(bytes, std::string_view(text).substr(read[r], bytes.size())) << i << ": at " << read[r];
    read[r] += bytes.size();
  }
}

TEST_P(FileSystemTest, ALargeFileIsReadOnWhileItIsReadAhead) {
  const std::string text = LargeText();
  ASSERT_TRUE(Write(*Create("a"), 0, text).ok());
  const auto opened = test::Must(files().Open(Path("a")));
  std::string bytes;
  for (std::size_t at = 0; at < text.size(); at += bytes.size()) {
    opened->ReadAhead(at, at + 5'000'000);  // the first bytes again and again
    bytes.resize(std::min<std::size_t>(700'001, text.size() - at));
    ASSERT_TRUE(opened->ReadAt(at, std::as_writable_bytes(std::span(bytes))).ok());
    ASSERT_EQ(bytes, std::string_view(text).substr(at, bytes.size())) << at;
  }
}

TEST_P(FileSystemTest, AFileThatWasCutWhileItIsReadAheadEndsWhereItWasCut) {
  const std::string text = LargeText();
  auto file = Create("a");
  ASSERT_TRUE(Write(*file, 0, text).ok());
  const auto opened = test::Must(files().Open(Path("a")));
  constexpr std::size_t kLeft = 9'000'001;
  ASSERT_TRUE(file->Truncate(kLeft).ok());
  opened->ReadAhead(0, text.size());
  std::string bytes(kLeft, ' ');
  ASSERT_TRUE(opened->ReadAt(0, std::as_writable_bytes(std::span(bytes))).ok());
  EXPECT_EQ(bytes, std::string_view(text).substr(0, kLeft));
  bytes.resize(1);
  test::ExpectStatus(opened->ReadAt(kLeft, std::as_writable_bytes(std::span(bytes))),
                     StatusCode::kUnavailable, Path("a"));
}

TEST_P(FileSystemTest, WhatIsWrittenLaterIsThereOnceItIsSynced) {
  constexpr std::size_t kAlign = 4096;
  auto file = Create("a");
  struct Free {
    void operator()(char* memory) const { ::operator delete(memory, std::align_val_t{kAlign}); }
  };
  const std::unique_ptr<char, Free> memory(
      static_cast<char*>(::operator new(8 * kAlign, std::align_val_t{kAlign})));
  for (std::size_t i = 0; i < 8 * kAlign; ++i) memory.get()[i] = static_cast<char>(i * 7 >> 4);
  const std::string text(memory.get(), 8 * kAlign);
  const auto piece = [&](std::size_t first, std::size_t size) {
    return std::as_bytes(std::span(memory.get() + first, size));
  };
  // Aligned pieces, others beside and behind them, and more ordinary ones than stay in memory.
  EXPECT_TRUE(file->WriteLater(0, piece(0, kAlign)).ok());
  EXPECT_TRUE(file->WriteLater(kAlign, piece(kAlign, 2 * kAlign)).ok());
  EXPECT_TRUE(Write(*file, 3 * kAlign, text.substr(3 * kAlign, 10)).ok());
  EXPECT_TRUE(file->WriteLater(3 * kAlign + 10, piece(3 * kAlign + 10, 100)).ok());
  for (std::size_t at = 3 * kAlign + 110; at < 6 * kAlign; at += 1000) {
    EXPECT_TRUE(file->WriteLater(at, piece(at, 1000)).ok());
  }
  EXPECT_TRUE(file->WriteLater(6 * kAlign, piece(6 * kAlign, 2 * kAlign)).ok());
  EXPECT_TRUE(file->WriteLater(8 * kAlign, {}).ok());
  EXPECT_TRUE(file->Sync().ok());
  EXPECT_EQ(Read(files(), Path("a")), text);
  // A piece that is still on its way when the file goes is written before that.
  auto other = Create("b");
  EXPECT_TRUE(other->WriteLater(0, piece(0, 8 * kAlign)).ok());
  other.reset();
  EXPECT_EQ(Read(files(), Path("b")), text);
}

TEST_P(FileSystemTest, MemoryOfAPieceIsFreeAfterAFewLaterPieces) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  constexpr std::size_t kPieces = 40;
  auto file = Create("a");
  std::vector<AlignedMemory> places;
  for (std::size_t p = 0; p <= WritableFile::kPiecesLater; ++p) places.emplace_back(kPiece);
  for (std::size_t i = 0; i < kPieces; ++i) {
    const auto piece = places[i % places.size()].First(kPiece);
    std::ranges::fill(piece, static_cast<std::byte>(i));
    ASSERT_TRUE(file->WriteLater(i * kPiece, piece).ok());
  }
  ASSERT_TRUE(file->WaitForPieces().ok());
  for (const AlignedMemory& place : places) std::ranges::fill(place.First(kPiece), std::byte{0xFF});
  ASSERT_TRUE(file->Sync().ok());
  const std::string text = Read(files(), Path("a"));
  ASSERT_EQ(text.size(), kPieces * kPiece);
  for (std::size_t i = 0; i < kPieces; ++i) {
    const std::string_view piece = std::string_view(text).substr(i * kPiece, kPiece);
    EXPECT_EQ(piece.find_first_not_of(static_cast<char>(i)), std::string_view::npos) << "piece " << i;
  }
}

TEST_P(FileSystemTest, AFileIsMadeOnceAndOpenedWhereItIs) {
  Create("a");
  test::ExpectStatus(files().Create(Path("a")).status(), StatusCode::kAlreadyExists, Path("a"));
  EXPECT_EQ(files().Open(Path("b")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(files().OpenToWrite(Path("b")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(files().Create(Path("no/b")).status().code(), StatusCode::kNotFound);
  auto file = test::Must(files().OpenToWrite(Path("a")));
  EXPECT_TRUE(Write(*file, 0, "abc").ok());
  EXPECT_EQ(Read(files(), Path("a")), "abc");
}

TEST_P(FileSystemTest, AFileIsNoFolderAndAFolderIsNoFile) {
  Create("a");
  EXPECT_TRUE(files().MakeFolder(Path("b")).ok());
  for (const std::string& path : {Path("a/manifest.json"), Path("b")}) {
    test::ExpectStatus(files().Open(path).status(), StatusCode::kNotFound, path);
  }
  EXPECT_EQ(files().List(Path("a")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(files().Create(Path("a/b")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(files().Remove(Path("b")).code(), StatusCode::kFailedPrecondition);
}

TEST_P(FileSystemTest, ReadingBehindTheEndIsAnError) {
  EXPECT_TRUE(Write(*Create("a"), 0, "abc").ok());
  auto file = test::Must(files().Open(Path("a")));
  std::array<std::byte, 2> bytes{};
  EXPECT_TRUE(file->ReadAt(1, bytes).ok());
  test::ExpectStatus(file->ReadAt(2, bytes), StatusCode::kUnavailable, Path("a"));
}

TEST_P(FileSystemTest, NamesChange) {
  EXPECT_TRUE(Write(*Create("b"), 0, "bee").ok());
  EXPECT_TRUE(Write(*Create("a"), 0, "a").ok());
  EXPECT_TRUE(files().MakeFolder(Path("c")).ok());
  EXPECT_TRUE(files().MakeFolder(Path("c")).ok());
  EXPECT_THAT(*files().List(folder_), ElementsAre("a", "b", "c"));
  EXPECT_TRUE(files().Rename(Path("b"), Path("a")).ok());
  EXPECT_EQ(Read(files(), Path("a")), "bee");
  EXPECT_EQ(files().Rename(Path("b"), Path("a")).code(), StatusCode::kNotFound);
  ASSERT_TRUE(files().Create(Path("c/d")).ok());
  EXPECT_TRUE(files().Rename(Path("c"), Path("e")).ok());
  EXPECT_THAT(*files().List(Path("e")), ElementsAre("d"));
  EXPECT_TRUE(files().Remove(Path("a")).ok());
  EXPECT_EQ(files().Remove(Path("a")).code(), StatusCode::kNotFound);
  EXPECT_TRUE(files().RemoveFolder(Path("e")).ok());
  EXPECT_TRUE(files().RemoveFolder(Path("e")).ok());
  EXPECT_TRUE(files().SyncFolder(folder_).ok());
  EXPECT_THAT(*files().List(folder_), ElementsAre());
  EXPECT_EQ(files().List(Path("e")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(files().SyncFolder(Path("e")).code(), StatusCode::kNotFound);
}

TEST_P(FileSystemTest, AJournalIsWrittenAndRead) {
  JournalOptions options = OptionsOf(0, 1, 5);
  options.folder = Path("journal");
  auto rank = test::Must(StartRank(files(), options));
  for (std::uint64_t round = 1; round <= 50; ++round) {
    EXPECT_TRUE(AppendRound(*rank->journal, 0, round).ok());
    if (round % 4 == 0) rank->journal->WriteQueued();
  }
  EXPECT_TRUE(SyncJournals(files(), options.folder).ok());
  EXPECT_EQ(test::Must(ReadJournals(files(), options.folder, kLineage, 0)).LastCompleteRound(), 48);
}

INSTANTIATE_TEST_SUITE_P(Both, FileSystemTest, ::testing::Values(Kind::kSystem, Kind::kSimulated),
                         [](const auto& kind) {
                           return kind.param == Kind::kSystem ? std::string("System")
                                                              : std::string("Simulated");
                         });

// Who opens a FIFO waits, unless somebody has opened the other end.
TEST(SystemFilesTest, WhatIsNoFileIsRefusedAtOnce) {
  const test::TemporaryFolder folder;
  const std::string fifo = folder.path() + "/fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const auto expect_refused = [](const Status& status, const std::string& path) {
    test::ExpectStatus(status, StatusCode::kFailedPrecondition, path);
  };
  expect_refused(SystemFiles().Open(fifo).status(), fifo);
  expect_refused(SystemFiles().OpenToWrite(fifo).status(), fifo);
  EXPECT_EQ(SystemFiles().Create(fifo).status().code(), StatusCode::kAlreadyExists);
  const int reader = open(fifo.c_str(), O_RDONLY | O_NONBLOCK);
  expect_refused(SystemFiles().OpenToWrite(fifo).status(), fifo);
  close(reader);
  expect_refused(SystemFiles().Open("/dev/zero").status(), "/dev/zero");
}

// A user who can put a link into the folder cannot have another file overwritten, or made.
TEST(SystemFilesTest, ALinkIsNotFollowedToAFileThatIsWritten) {
  const test::TemporaryFolder temporary;
  const std::filesystem::path folder = temporary.path();
  std::filesystem::create_directory(folder / "target");
  std::ofstream(folder / "file") << "somebody's";
  for (const char* const target : {"file", "gone", "target"}) {
    SCOPED_TRACE(target);
    const std::string link = folder / "link";
    std::filesystem::create_symlink(target, link);
    test::ExpectStatus(SystemFiles().OpenToWrite(link).status(), StatusCode::kFailedPrecondition, link,
                       "is a symbolic link");
    EXPECT_EQ(SystemFiles().Create(link).status().code(), StatusCode::kAlreadyExists);
    test::ExpectStatus(FolderLock::Take(folder, "link", "a server").status(), StatusCode::kUnavailable, link,
                       "is a symbolic link");
    EXPECT_TRUE(std::filesystem::remove(link));
  }
  EXPECT_EQ(Read(SystemFiles(), folder / "file"), "somebody's");
  EXPECT_FALSE(std::filesystem::exists(folder / "gone"));
  EXPECT_TRUE(std::filesystem::is_empty(folder / "target"));
  // The way to a file may have links: a folder may lie on another disk.
  std::filesystem::create_symlink("target", folder / "elsewhere");
  EXPECT_TRUE(SystemFiles().Create(folder / "elsewhere" / "new").ok());
}

TEST(SystemFilesTest, HolesAreKnown) {
  const test::TemporaryFolder temporary;
  const std::string path = temporary.path() + "/file";
  constexpr std::uint64_t kHole = std::uint64_t{64} << 20;
  {
    const auto file = test::Must(SystemFiles().Create(path));
    ASSERT_TRUE(Write(*file, kHole, "x").ok());
    ASSERT_TRUE(file->Truncate(3 * kHole).ok());
  }
  const auto file = test::Must(SystemFiles().Open(path));
  for (const std::uint64_t offset : {std::uint64_t{0}, kHole - 1}) {
    const std::uint64_t data = file->NextData(offset);
    EXPECT_GE(data, offset);
    EXPECT_LE(data, kHole);
  }
  EXPECT_EQ(file->NextData(kHole), kHole);
  EXPECT_LE(file->NextData(2 * kHole), 3 * kHole);
  EXPECT_EQ(file->NextData(3 * kHole), 3 * kHole);
}

TEST(SystemFilesTest, SpaceThatIsNotThereIsNamed) {
  const test::TemporaryFolder folder;
  auto file = SystemFiles().Create(folder.path() + "/a");
  ASSERT_TRUE(file.ok());
  const Status status = (*file)->Reserve(std::uint64_t{1} << 62);
  EXPECT_FALSE(status.ok());  // which error, the file system decides
  EXPECT_THAT(status.message(), HasSubstr("cannot take space for " + folder.path() + "/a: "));
}

// Crashes with many seeds, and returns all that a file may then hold.
std::vector<std::string> AfterCrashes(const std::function<void(SimFiles&)>& prepare) {
  std::vector<std::string> seen;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SimFiles files;
    prepare(files);
    files.Crash(seed);
    const std::string text = Read(files, "a");
    if (std::find(seen.begin(), seen.end(), text) == seen.end()) seen.push_back(text);
  }
  return seen;
}

std::unique_ptr<WritableFile> SyncedFile(SimFiles& files, std::string_view text) {
  auto file = files.Create("a");
  EXPECT_TRUE(Write(**file, 0, text).ok());
  EXPECT_TRUE((*file)->Sync().ok());
  EXPECT_TRUE(files.SyncFolder("").ok());
  return std::move(*file);
}

TEST(SimFilesTest, WhatIsSyncedStays) {
  EXPECT_THAT(AfterCrashes([](SimFiles& files) { SyncedFile(files, "abc"); }), ElementsAre("abc"));
}

TEST(SimFilesTest, AWriteIsTornAnywhere) {
  EXPECT_THAT(
      AfterCrashes([](SimFiles& files) { EXPECT_TRUE(Write(*SyncedFile(files, "abc"), 0, "xyz").ok()); }),
      UnorderedElementsAre("abc", "xbc", "abz", "xyc", "ayz", "xyz"));
}

TEST(SimFilesTest, WritesAreReordered) {
  EXPECT_THAT(AfterCrashes([](SimFiles& files) {
                auto file = SyncedFile(files, "a");
                EXPECT_TRUE(Write(*file, 0, "x").ok());
                EXPECT_TRUE(Write(*file, 0, "y").ok());
              }),
              UnorderedElementsAre("a", "x", "y"));
  EXPECT_THAT(AfterCrashes([](SimFiles& files) {
                auto file = SyncedFile(files, "ab");
                EXPECT_TRUE(Write(*file, 0, "x").ok());
                EXPECT_TRUE(Write(*file, 1, "y").ok());
              }),
              UnorderedElementsAre("ab", "xb", "ay", "xy"));
}

TEST(SimFilesTest, ANameThatIsNotSyncedMayGoOrStay) {
  EXPECT_THAT(AfterCrashes([](SimFiles& files) {
                auto file = files.Create("a");
                EXPECT_TRUE(Write(**file, 0, "abc").ok());
                EXPECT_TRUE((*file)->Sync().ok());
              }),
              UnorderedElementsAre("abc", HasSubstr("no such file")));
  EXPECT_THAT(AfterCrashes([](SimFiles& files) {
                SyncedFile(files, "abc");
                files.SetContents("b", BytesOf("new"));
                EXPECT_TRUE(files.Rename("b", "a").ok());
              }),
              UnorderedElementsAre("abc", "new"));
}

TEST(SimFilesTest, ASyncThatFailedIsNotMadeGoodByALaterOne) {
  EXPECT_THAT(AfterCrashes([](SimFiles& files) {
                auto file = SyncedFile(files, "abc");
                EXPECT_TRUE(Write(*file, 0, "xyz").ok());
                files.FailAt(files.operations() + 1, SimFiles::Fault::kBroken);
                EXPECT_FALSE(file->Sync().ok());
                EXPECT_TRUE(file->Sync().ok());
                EXPECT_EQ(Read(files, "a"), "xyz");
              }),
              ElementsAre("abc"));
}

TEST(SimFilesTest, AKilledProcessLosesNothingYet) {
  SimFiles files;
  auto file = SyncedFile(files, "abc");
  EXPECT_TRUE(Write(*file, 0, "xyz").ok());
  files.Kill();
  EXPECT_EQ(Read(files, "a"), "xyz");
  EXPECT_EQ(Write(*file, 0, "abc").code(), StatusCode::kUnavailable);
}

TEST(SimFilesTest, AFullDiskTakesNoMore) {
  SimFiles files;
  auto file = SyncedFile(files, "abc");
  files.SetCapacity(5);
  EXPECT_TRUE(file->Reserve(5).ok());
  EXPECT_EQ(file->Reserve(6).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(Write(*file, 4, "xy").code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(Write(*file, 3, "xy").ok());
  EXPECT_TRUE(files.Remove("a").ok());
  EXPECT_EQ(files.used(), 0);
}

TEST(SimFilesTest, ADeadProcessDoesNothing) {
  SimFiles files;
  auto file = SyncedFile(files, "abc");
  files.CrashAt(files.operations() + 2);
  EXPECT_TRUE(file->Sync().ok());
  EXPECT_EQ(file->Sync().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(files.dead());
  EXPECT_EQ(files.Create("b").status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(files.Open("a").status().code(), StatusCode::kUnavailable);
  files.Crash(1);
  EXPECT_EQ(Read(files, "a"), "abc");
}

}  // namespace
}  // namespace slotwise
