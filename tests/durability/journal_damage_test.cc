#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "server/durability/bounds.h"
#include "tests/durability/journal_rig.h"
#include "tests/durability/watched_files.h"
#include "tests/support/status.h"
#include "tests/support/temporary_folder.h"

namespace slotwise {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kFirst = kFolder + "/rank-0/" + ToString(SegmentName{1, 5});

class JournalDamageTest : public JournalTest {
 protected:
  // Writes a whole run of one rank.
  void Run(std::uint64_t instance, const JournalPosition& follows, std::uint64_t first, std::uint64_t last) {
    Start(OptionsOf(0, 1, instance, follows))->Write(first, last);
  }
  static std::string PathOf(std::uint32_t rank) {
    return kFolder + "/" + RankFolder(rank) + "/" + ToString(SegmentName{1, 5});
  }
  void Resize(const std::string& path, std::uint64_t size) {
    Bytes bytes = files_.Contents(path);
    bytes.resize(size);
    files_.SetContents(path, bytes);
  }
  // Flips a bit of some bytes, or of the file's own.
  void Flip(const std::string& path, Bytes bytes, std::uint64_t bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    files_.SetContents(path, bytes);
  }
  void FlipByte(const std::string& path, std::uint64_t byte) { Flip(path, files_.Contents(path), 8 * byte); }
};

TEST_F(JournalDamageTest, AFileThatIsCutKeepsAllWholeRecords) {
  Run(5, {}, 1, 4);
  const Bytes whole = files_.Contents(kFirst);
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    for (const bool zeros : {false, true}) {  // a reserved tail of zeros, too
      Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
      if (zeros) cut.resize(whole.size());
      const bool is_same = zeros && cut == whole;
      files_.SetContents(kFirst, cut);
      std::uint64_t rounds = 0;
      while (rounds < 4 && RecordAt(rounds + 2) <= size) ++rounds;
      const Recovered recovered = Recover(files_);
      ASSERT_TRUE(recovered.status.ok()) << size << ": " << recovered.status.message();
      if (!zeros) {
        ASSERT_EQ(recovered.rounds, RoundsFromTo(1, rounds)) << size;
      } else {  // what was cut off may have been zeros
        ASSERT_GE(recovered.rounds.size(), rounds) << size;
        ASSERT_LE(recovered.rounds.size(), is_same ? 4 : rounds + 1) << size;
      }
    }
  }
}

TEST_F(JournalDamageTest, AFlippedBitIsFound) {
  Run(5, {}, 1, 3);
  const Bytes whole = files_.Contents(kFirst);
  const std::uint64_t second = RecordAt(2);
  const std::uint64_t third = RecordAt(3);
  for (std::size_t bit = 0; bit < RecordAt(4) * 8; ++bit) {
    const std::size_t byte = bit / 8;
    Flip(kFirst, whole, bit);
    const Recovered recovered = Recover(files_);
    if (recovered.status.ok()) {
      // A damaged last record cannot be told from one that a crash tore; and padding has no meaning.
      const bool is_padding =
          (byte < second && byte >= kSegmentHeaderBytes + kRecordHeaderBytes + BodyOf(0, 1).size()) ||
          (byte < third && byte >= second + kRecordHeaderBytes + BodyOf(0, 2).size()) ||
          byte >= third + kRecordHeaderBytes + BodyOf(0, 3).size();
      ASSERT_TRUE(byte >= third || is_padding) << "bit " << bit;
      ASSERT_EQ(recovered.rounds, RoundsFromTo(1, is_padding ? 3 : 2)) << "bit " << bit;
    } else {
      ASSERT_LT(byte, third) << "bit " << bit;
      ASSERT_THAT(recovered.status.code(), AnyOf(StatusCode::kDataLoss, StatusCode::kFailedPrecondition));
      ASSERT_THAT(recovered.status.message(), HasSubstr(kFirst));
      if (byte >= kSegmentHeaderBytes) {
        const std::uint64_t record = byte < second ? kSegmentHeaderBytes : second;
        ASSERT_THAT(recovered.status.message(), HasSubstr("at byte " + std::to_string(record) + ":"));
      }
    }
  }
}

TEST_F(JournalDamageTest, AGroupThatACrashToreInTheMiddleIsATornTail) {
  auto rank = Start();
  rank->Write(1);
  for (std::uint64_t round = 2; round <= 4; ++round) rank->Append(round);
  rank->journal->WriteQueued();
  for (const std::uint64_t at : {RecordAt(2), RecordAt(2) + kRecordHeaderBytes}) {
    FlipByte(kFirst, at);
    const Recovered recovered = Recover(files_);
    EXPECT_TRUE(recovered.status.ok()) << recovered.status.message();
    EXPECT_EQ(recovered.rounds, RoundsFromTo(1, 1));
  }
}

TEST_F(JournalDamageTest, AnEndThatANextSegmentNeedsIsNotTorn) {
  auto rank = Start();
  rank->Write(1, 3);
  rank->journal->BeginSegment(4);
  rank->Write(4);
  Resize(kFirst, files_.Contents(kFirst).size() - 8);
  test::ExpectStatus(Recover(files_).status, StatusCode::kDataLoss, kFirst);
  EXPECT_EQ(Recover(files_, 3).rounds, RoundsFromTo(4, 4));  // a checkpoint needs no more
}

TEST_F(JournalDamageTest, AnEndThatANextRunNeedsIsNotTorn) {
  Run(5, {}, 1, 3);
  Run(6, {.instance = 5, .round = 3, .run_number = 1}, 4, 5);
  EXPECT_EQ(Recover(files_).rounds, RoundsFromTo(1, 5));
  FlipByte(kFirst, RecordAt(3) + 3);
  test::ExpectStatus(Recover(files_).status, StatusCode::kDataLoss, kFirst);
  EXPECT_EQ(Recover(files_, 3).rounds, RoundsFromTo(4, 5));
}

TEST_F(JournalDamageTest, RoundsThatTheNextRunDidNotCountAreVoid) {
  Run(5, {}, 1, 6);
  Run(6, {.instance = 5, .round = 4, .run_number = 1}, 5, 8);
  const Recovered recovered = Recover(files_);
  EXPECT_TRUE(recovered.status.ok()) << recovered.status.message();
  EXPECT_EQ(recovered.rounds, RoundsFromTo(1, 8));
  EXPECT_EQ(recovered.set.Next(),
            (JournalPosition{.instance = 6, .round = 8, .run_number = 2, .runs = {{5, 4}, {6, 8}}}));
}

TEST_F(JournalDamageTest, AMissingRankIsNamed) {
  for (std::uint32_t number = 0; number < 3; ++number) {
    Start(OptionsOf(number, 3, 5))->Write(1, 2);
  }
  EXPECT_TRUE(files_.RemoveFolder(kFolder + "/rank-1").ok());
  test::ExpectStatus(Recover(files_).status, StatusCode::kDataLoss, "rank 1 of 3");
}

TEST_F(JournalDamageTest, ARankWhoseEndIsLostIsNamed) {
  auto zero = Start(OptionsOf(0, 2, 5));
  auto one = Start(OptionsOf(1, 2, 5));
  for (std::uint64_t round = 1; round <= 4; ++round) {
    zero->Write(round);
    one->Write(round);
    zero->journal->NoteComplete(round);
  }
  Resize(PathOf(1), RecordAt(2, 1));
  test::ExpectStatus(Recover(files_).status, StatusCode::kDataLoss,
                     "rank 1 ends with round 1 in " + PathOf(1));
  EXPECT_EQ(Recover(files_, 3).set.LastCompleteRound(), 3);
}

TEST_F(JournalDamageTest, AMissingSegmentIsFound) {
  auto rank = Start();
  for (std::uint64_t round = 1; round <= 3; ++round) {
    rank->journal->BeginSegment(round);
    rank->Write(round);
  }
  const std::string second = kFolder + "/rank-0/" + ToString(SegmentName{2, 5});
  files_.SetContents(second, {});
  EXPECT_EQ(Recover(files_, 1).status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(Recover(files_, 2).rounds, RoundsFromTo(3, 3));
  EXPECT_TRUE(files_.Remove(second).ok());
  EXPECT_EQ(Recover(files_).status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(Recover(files_, 1).status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(Recover(files_, 2).rounds, RoundsFromTo(3, 3));
}

TEST_F(JournalDamageTest, AMissingRunIsFound) {
  Run(5, {}, 1, 3);
  Run(6, {.instance = 5, .round = 3, .run_number = 1}, 4, 5);
  EXPECT_TRUE(files_.Remove(kFirst).ok());
  EXPECT_EQ(Recover(files_).status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(Recover(files_, 3).rounds, RoundsFromTo(4, 5));
}

TEST_F(JournalDamageTest, AnotherLineageIsRefused) {
  Run(5, {}, 1, 3);
  test::ExpectStatus(Recover(files_, 0, kLineage + 1).status, StatusCode::kFailedPrecondition, kFirst);
}

TEST_F(JournalDamageTest, AFileInAnotherRanksFolderIsRefused) {
  Run(5, {}, 1, 3);
  EXPECT_TRUE(files_.MakeFolder(kFolder + "/rank-1").ok());
  files_.SetContents(PathOf(1), files_.Contents(kFirst));
  EXPECT_EQ(Recover(files_).status.code(), StatusCode::kDataLoss);
}

TEST_F(JournalDamageTest, RanksThatDoNotAgreeAreRefused) {
  auto zero = Start(OptionsOf(0, 2, 5));
  auto one = Start(OptionsOf(1, 3, 5));
  EXPECT_EQ(Recover(files_).status.code(), StatusCode::kDataLoss);
}

TEST_F(JournalDamageTest, AnotherVersionIsRefused) {
  Run(5, {}, 1, 3);
  Bytes bytes = files_.Contents(kFirst);
  bytes[8] = std::byte{2};
  files_.SetContents(kFirst, bytes);
  test::ExpectStatus(Recover(files_).status, StatusCode::kFailedPrecondition, "format version 2");
}

TEST_F(JournalDamageTest, AStartThatWasBrokenOffIsPassedOver) {
  for (std::uint32_t number = 0; number < 2; ++number) {
    Start(OptionsOf(number, 2, 5))->Write(1, 3);
  }
  const JournalPosition follows = Recover(files_).set.Next();
  auto broken_off = Start(OptionsOf(1, 2, 6, follows));  // rank 0 never came so far
  const Recovered recovered = Recover(files_);
  EXPECT_TRUE(recovered.status.ok()) << recovered.status.message();
  EXPECT_EQ(recovered.rounds, RoundsFromTo(1, 3));
  EXPECT_EQ(recovered.set.Next(),
            (JournalPosition{.instance = 5, .round = 3, .run_number = 2, .runs = {{5, 3}}}));
  for (std::uint32_t number = 0; number < 2; ++number) {
    Start(OptionsOf(number, 2, 7, recovered.set.Next()))->Write(4, 5);
  }
  EXPECT_EQ(Recover(files_).rounds, RoundsFromTo(1, 5));
}

// The last records have none behind them that would say that they were on disk: a mark says so.
TEST_F(JournalDamageTest, AnEndThatAMarkNeedsIsNotTorn) {
  auto rank = Start();
  rank->Write(1, 3);
  rank->journal->NoteComplete(3);
  rank->journal->WriteMark();
  const Bytes whole = files_.Contents(kFirst);
  EXPECT_EQ(Recover(files_).rounds, RoundsFromTo(1, 3));
  const std::uint64_t third = RecordAt(3);
  const std::uint64_t body = third + kRecordHeaderBytes;
  const std::uint64_t mark = RecordAt(4);
  for (std::uint64_t bit = third * 8; bit < (mark + kRecordHeaderBytes) * 8; ++bit) {
    Flip(kFirst, whole, bit);
    const Recovered recovered = Recover(files_);
    if (bit / 8 < body + BodyOf(0, 3).size()) {
      ASSERT_EQ(recovered.status.code(), StatusCode::kDataLoss) << "bit " << bit;
      ASSERT_THAT(recovered.status.message(),
                  AllOf(HasSubstr(kFirst), HasSubstr("at byte " + std::to_string(third) + ":")));
    } else {  // padding, or the mark itself
      ASSERT_EQ(recovered.rounds, RoundsFromTo(1, 3)) << "bit " << bit;
      ASSERT_EQ(recovered.set.broken_off.size(), bit / 8 < mark ? 0U : 1U) << "bit " << bit;
    }
  }
}

// The next group begins where the mark is, and its first page is not on disk.
TEST_F(JournalDamageTest, AGroupThatIsTornBehindAMarkIsSaid) {
  auto rank = Start();
  rank->Write(1, 3);
  rank->journal->NoteComplete(3);
  rank->journal->WriteMark();
  EXPECT_THAT(Recover(files_).set.broken_off, IsEmpty());
  Resize(kFirst, std::size_t{1} << 16);
  FlipByte(kFirst, (1 << 16) - 1);
  const Recovered recovered = Recover(files_);
  EXPECT_EQ(recovered.rounds, RoundsFromTo(1, 3));
  EXPECT_THAT(recovered.set.broken_off, ElementsAre(HasSubstr("bytes that are no record")));
}

TEST_F(JournalDamageTest, TheNextRecordTakesAMarksPlace) {
  auto rank = Start();
  for (std::uint64_t round = 1; round <= 40; ++round) {
    if (round % 9 == 0) rank->journal->BeginSegment(round);
    rank->Write(round);
    rank->journal->NoteComplete(round);
    const std::uint64_t used = files_.used();
    rank->journal->WriteMark();
    EXPECT_EQ(files_.used(), used) << "a mark takes no space of its own";
    const Recovered recovered = Recover(files_);
    ASSERT_EQ(recovered.rounds, RoundsFromTo(1, round)) << recovered.status.message();
    ASSERT_THAT(recovered.set.broken_off, IsEmpty());
    if (round % 3 == 0) {
      EXPECT_TRUE(SyncJournals(files_, kFolder).ok());
    }
  }
  EXPECT_THAT(rank->failures, IsEmpty());
}

TEST_F(JournalDamageTest, ARankWhoseLastRecordIsLostIsNamedByAnothersMark) {
  auto zero = Start(OptionsOf(0, 2, 5));
  auto one = Start(OptionsOf(1, 2, 5));
  for (std::uint64_t round = 1; round <= 4; ++round) {
    zero->Write(round);
    one->Write(round);
  }
  zero->journal->NoteComplete(4);
  zero->journal->WriteMark();
  const std::string path = PathOf(1);
  const Bytes whole = files_.Contents(path);
  const std::uint64_t last = RecordAt(4, 1);
  Bytes cut = whole;
  cut.resize(last);
  Bytes zeros = cut;
  zeros.resize(whole.size());
  Bytes flipped = whole;
  flipped[last + kRecordHeaderBytes] ^= std::byte{1};
  for (const Bytes& bytes : {cut, zeros, flipped}) {
    files_.SetContents(path, bytes);
    test::ExpectStatus(Recover(files_).status, StatusCode::kDataLoss, "rank 1 ends with round 3 in " + path,
                       "round 4 was on disk");
    EXPECT_EQ(Recover(files_, 4).set.LastCompleteRound(), 4) << "a checkpoint has it";
  }
}

TEST_F(JournalDamageTest, WhatIsCutOffIsSaid) {
  auto zero = Start(OptionsOf(0, 2, 5));
  auto one = Start(OptionsOf(1, 2, 5));
  for (std::uint64_t round = 1; round <= 3; ++round) {
    zero->Write(round);
    one->Write(round);
  }
  EXPECT_THAT(Recover(files_).set.broken_off, IsEmpty());
  zero->Write(4);
  const std::string path = PathOf(1);
  EXPECT_THAT(Recover(files_).set.broken_off,
              ElementsAre(AllOf(HasSubstr(kFirst), HasSubstr("rounds up to 4"), HasSubstr("up to 3"))));
  const std::uint64_t third = RecordAt(3, 1);
  const Bytes whole = files_.Contents(path);
  Flip(path, whole, 8 * (third + kRecordHeaderBytes));
  const std::string ends = "ends at byte " + std::to_string(third) + " with round 2";
  EXPECT_THAT(
      Recover(files_).set.broken_off,
      ElementsAre(HasSubstr("rounds up to 4"),
                  AllOf(HasSubstr(path), HasSubstr(ends), HasSubstr("the record of round 3, whose body"))));
  Flip(path, whole, 8 * (third + 5));
  EXPECT_THAT(Recover(files_).set.broken_off,
              ElementsAre(HasSubstr("rounds up to 4"),
                          AllOf(HasSubstr(path), HasSubstr(ends), HasSubstr("bytes that are no record"))));
}

// Bytes with right checksums that no server writes.
class ForgedJournalTest : public JournalDamageTest {
 protected:
  static constexpr SegmentHeader kHeader{.rank = 0,
                                         .ranks = 1,
                                         .lineage = kLineage,
                                         .instance = 5,
                                         .run_number = 1,
                                         .follows = 0,
                                         .follows_round = 0,
                                         .first_round = 1,
                                         .after_round = 0,
                                         .seed = 77};

  // Writes a segment with a record, and returns what a recovery says.
  Recovered Forge(const SegmentHeader& header, const RecordHeader& record) {
    EXPECT_TRUE(files_.MakeFolder(kFolder).ok());
    EXPECT_TRUE(files_.MakeFolder(kFolder + "/rank-0").ok());
    const std::string path =
        kFolder + "/rank-0/" + ToString(SegmentName{header.first_round, header.instance});
    const Bytes body = BodyOf(0, record.round);
    RecordHeader with_hash = record;
    RecordHash hash(header.seed);
    hash.Add(body);
    with_hash.body_bytes = body.size();
    with_hash.payload_hash = hash.Value();
    with_hash.kind = KindOf(record.round);
    Bytes bytes;
    for (const auto byte : Encode(header)) bytes.push_back(byte);
    for (const auto byte : Encode(with_hash, header.seed)) bytes.push_back(byte);
    bytes.insert(bytes.end(), body.begin(), body.end());
    bytes.resize((bytes.size() + 7) / 8 * 8);
    files_.SetContents(path, bytes);
    Recovered recovered = Recover(files_);
    EXPECT_TRUE(files_.Remove(path).ok());
    if (!recovered.status.ok()) {
      test::ExpectStatus(recovered.status, StatusCode::kDataLoss, path);
    }
    return recovered;
  }
  static RecordHeader RecordOf(std::uint64_t round, std::uint64_t complete = 0) {
    return {.round = round, .instance = 5, .group = kSegmentHeaderBytes, .complete = complete};
  }
};

TEST_F(ForgedJournalTest, NumbersThatWouldWrapAroundAreRefused) {
  EXPECT_EQ(Forge(kHeader, RecordOf(1)).rounds, RoundsFromTo(1, 1));
  const auto refused = [&](std::uint64_t SegmentHeader::*field, std::uint64_t number) {
    SegmentHeader header = kHeader;
    header.*field = number;
    header.after_round = std::max(header.after_round, header.follows_round);
    return Forge(header, RecordOf(std::max(number, std::uint64_t{1}))).status.message();
  };
  for (const std::uint64_t number : {kMaxRound + 1, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    EXPECT_THAT(refused(&SegmentHeader::run_number, number), HasSubstr("numbers that no server writes"));
    EXPECT_THAT(refused(&SegmentHeader::first_round, number), HasSubstr("numbers that no server writes"));
    EXPECT_THAT(refused(&SegmentHeader::after_round, number), HasSubstr("numbers that no server writes"));
    EXPECT_THAT(refused(&SegmentHeader::follows_round, number), HasSubstr("numbers that no server writes"));
    EXPECT_THAT(Forge(kHeader, RecordOf(number)).status.message(), HasSubstr("is none that a server writes"));
  }
  EXPECT_THAT(refused(&SegmentHeader::run_number, 0), HasSubstr("numbers that no server writes"));
  EXPECT_THAT(refused(&SegmentHeader::instance, 0), HasSubstr("numbers that no server writes"));
  SegmentHeader many = kHeader;
  many.ranks = kMaxJournalRanks + 1;
  EXPECT_THAT(Forge(many, RecordOf(1)).status.message(), HasSubstr("numbers that no server writes"));
  EXPECT_EQ(Forge(kHeader, RecordOf(kMaxRound)).rounds, std::vector<std::uint64_t>{kMaxRound});
}

TEST_F(ForgedJournalTest, ARecordCannotSayThatItIsOnDiskItself) {
  EXPECT_EQ(Forge(kHeader, RecordOf(7, 6)).status.message().find("says that"), std::string::npos);
  for (const std::uint64_t complete : {std::uint64_t{7}, std::uint64_t{8}, ~std::uint64_t{0}})
    EXPECT_THAT(Forge(kHeader, RecordOf(7, complete)).status.message(),
                HasSubstr("is none that a server writes"));
}

// A folder of the system's, because files of a simulation have no holes.
class JournalSizeTest : public ::testing::Test {
 protected:
  JournalSizeTest() { std::filesystem::create_directories(Folder() + "/rank-0"); }

  std::string Folder() const { return temporary_.path() + "/journal"; }
  std::string PathOf(std::uint64_t round) const {
    return Folder() + "/rank-0/" + ToString(SegmentName{round, 5});
  }
  // Makes a file that is a hole, behind some bytes.
  void MakeSparse(const std::string& path, std::span<const std::byte> begin, std::uint64_t size) {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(begin.data()), static_cast<std::streamsize>(begin.size()));
    std::filesystem::resize_file(path, size);
  }

  const test::TemporaryFolder temporary_;
  WatchedFiles files_{SystemFiles()};
};

TEST_F(JournalSizeTest, AFileThatIsTooLargeIsRefusedByItsSize) {
  MakeSparse(PathOf(1), {}, std::uint64_t{1} << 40);
  test::ExpectStatus(ReadJournals(files_, Folder(), kLineage, 0).status(), StatusCode::kDataLoss, PathOf(1),
                     "1099511627776 bytes");
  EXPECT_TRUE(SyncJournals(files_, Folder()).ok()) << "who reads says so";
  EXPECT_LT(files_.bytes_read, 10'000U);
}

TEST_F(JournalSizeTest, HolesAreNotRead) {
  const SegmentHeaderBytes header = Encode(SegmentHeader{.rank = 0,
                                                         .ranks = 1,
                                                         .lineage = kLineage,
                                                         .instance = 5,
                                                         .run_number = 1,
                                                         .first_round = 2,
                                                         .seed = 77});
  MakeSparse(PathOf(1), {}, kMaxSegmentBytes);
  MakeSparse(PathOf(2), header, kMaxSegmentBytes);
  EXPECT_TRUE(SyncJournals(files_, Folder()).ok());
  const auto set = test::Must(ReadJournals(files_, Folder(), kLineage, 0));
  EXPECT_LT(files_.bytes_read, std::uint64_t{100} << 20);
}

TEST_F(JournalSizeTest, FilesWithoutAHeaderAreNotSynced) {
  constexpr std::uint64_t kFiles = 300;
  for (std::uint64_t round = 1; round <= kFiles; ++round) {
    const std::uint64_t sizes[] = {0, 1, kSegmentHeaderBytes - 1, kSegmentHeaderBytes, 1 << 20};
    MakeSparse(PathOf(round), {}, sizes[round % std::size(sizes)]);
  }
  std::uint64_t changes = 0;
  files_.before_change = [&](const std::string& operation, const std::string&) {
    changes += operation == "sync folder" ? 0 : 1;
    return Status();
  };
  EXPECT_TRUE(SyncJournals(files_, Folder()).ok());
  EXPECT_EQ(changes, 0U);
  EXPECT_EQ(files_.opened.size(), kFiles);
  EXPECT_EQ(test::Must(ReadJournals(files_, Folder(), kLineage, 9)).Next(),
            (JournalPosition{.instance = 0, .round = 9, .run_number = 0}));
}

TEST_F(JournalDamageTest, AFolderThatIsNotThereHoldsNothing) {
  const Recovered recovered = Recover(files_, 9);
  EXPECT_TRUE(recovered.status.ok());
  EXPECT_EQ(recovered.set.Next(), (JournalPosition{.instance = 0, .round = 9, .run_number = 0}));
  EXPECT_TRUE(SyncJournals(files_, kFolder).ok());
}

}  // namespace
}  // namespace slotwise
