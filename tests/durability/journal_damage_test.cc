#include <gmock/gmock.h>

#include "tests/durability/journal_rig.h"

namespace slotwise {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

const std::string kFirst = kFolder + "/rank-0/" + ToString(SegmentName{1, 5});

class JournalDamageTest : public ::testing::Test {
 protected:
  JournalDamageTest() { MakeDataFolder(files_); }

  std::unique_ptr<RankOfTest> Start(const JournalOptions& options) {
    auto rank = StartRank(files_, options);
    EXPECT_TRUE(rank.ok()) << rank.status().message();
    return std::move(*rank);
  }

  // Writes rounds, each by itself.
  void Write(RankOfTest& rank, std::uint64_t first, std::uint64_t last, std::uint32_t number = 0) {
    for (std::uint64_t round = first; round <= last; ++round) {
      EXPECT_TRUE(AppendRound(*rank.journal, number, round).ok());
      rank.journal->WriteQueued();
    }
  }

  // Writes a whole run of one rank.
  void Run(std::uint64_t incarnation, const JournalPosition& follows, std::uint64_t first,
           std::uint64_t last) {
    auto rank = Start(OptionsOf(0, 1, incarnation, follows));
    Write(*rank, first, last);
  }

  SimFiles files_;
};

TEST_F(JournalDamageTest, AFileThatIsCutKeepsAllWholeRecords) {
  Run(5, {}, 1, 4);
  const Bytes whole = files_.Contents(kFirst);
  std::vector<std::uint64_t> ends{kSegmentHeaderBytes};
  for (std::uint64_t round = 1; round <= 4; ++round) {
    ends.push_back(ends.back() + BytesOfRecord(BodyOf(0, round).size()));
  }
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    for (const bool zeros : {false, true}) {  // a reserved tail of zeros, too
      Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
      if (zeros) cut.resize(whole.size());
      const bool is_same = zeros && cut == whole;
      files_.SetContents(kFirst, cut);
      std::uint64_t rounds = 0;
      while (rounds < 4 && ends[rounds + 1] <= size) ++rounds;
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
  const std::uint64_t second = kSegmentHeaderBytes + BytesOfRecord(BodyOf(0, 1).size());
  const std::uint64_t third = second + BytesOfRecord(BodyOf(0, 2).size());
  const std::uint64_t end = third + BytesOfRecord(BodyOf(0, 3).size());
  for (std::size_t bit = 0; bit < end * 8; ++bit) {
    const std::size_t byte = bit / 8;
    Bytes bytes = whole;
    bytes[byte] ^= static_cast<std::byte>(1U << (bit % 8));
    files_.SetContents(kFirst, bytes);
    const Recovered recovered = Recover(files_);
    if (recovered.status.ok()) {
      // Nobody can tell a damaged last record from one that a crash tore; and padding has no meaning.
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
  auto rank = Start(OptionsOf(0, 1, 5));
  Write(*rank, 1, 1);
  for (std::uint64_t round = 2; round <= 4; ++round) EXPECT_TRUE(AppendRound(*rank->journal, 0, round).ok());
  rank->journal->WriteQueued();
  const std::uint64_t second = kSegmentHeaderBytes + BytesOfRecord(BodyOf(0, 1).size());
  for (const std::uint64_t at : {second, second + kRecordHeaderBytes}) {
    Bytes bytes = files_.Contents(kFirst);
    bytes[at] ^= std::byte{1};
    files_.SetContents(kFirst, bytes);
    const Recovered recovered = Recover(files_);
    EXPECT_TRUE(recovered.status.ok()) << recovered.status.message();
    EXPECT_EQ(recovered.rounds, RoundsFromTo(1, 1));
  }
}

TEST_F(JournalDamageTest, AnEndThatANextSegmentNeedsIsNotTorn) {
  auto rank = Start(OptionsOf(0, 1, 5));
  Write(*rank, 1, 3);
  rank->journal->BeginSegment(4);
  Write(*rank, 4, 4);
  Bytes bytes = files_.Contents(kFirst);
  bytes.resize(bytes.size() - 8);
  files_.SetContents(kFirst, bytes);
  const Recovered recovered = Recover(files_);
  EXPECT_EQ(recovered.status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(recovered.status.message(), HasSubstr(kFirst));
  EXPECT_EQ(Recover(files_, 3).rounds, RoundsFromTo(4, 4));  // a checkpoint needs no more
}

TEST_F(JournalDamageTest, AnEndThatANextRunNeedsIsNotTorn) {
  Run(5, {}, 1, 3);
  Run(6, {.incarnation = 5, .round = 3, .generation = 1}, 4, 5);
  EXPECT_EQ(Recover(files_).rounds, RoundsFromTo(1, 5));
  const std::uint64_t third =
      kSegmentHeaderBytes + BytesOfRecord(BodyOf(0, 1).size()) + BytesOfRecord(BodyOf(0, 2).size());
  Bytes bytes = files_.Contents(kFirst);
  bytes[third + 3] ^= std::byte{1};
  files_.SetContents(kFirst, bytes);
  const Recovered recovered = Recover(files_);
  EXPECT_EQ(recovered.status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(recovered.status.message(), HasSubstr(kFirst));
  EXPECT_EQ(Recover(files_, 3).rounds, RoundsFromTo(4, 5));
}

TEST_F(JournalDamageTest, RoundsThatTheNextRunDidNotCountAreVoid) {
  Run(5, {}, 1, 6);
  Run(6, {.incarnation = 5, .round = 4, .generation = 1}, 5, 8);
  const Recovered recovered = Recover(files_);
  EXPECT_TRUE(recovered.status.ok()) << recovered.status.message();
  EXPECT_EQ(recovered.rounds, RoundsFromTo(1, 8));
  EXPECT_EQ(recovered.set.Next(),
            (JournalPosition{.incarnation = 6, .round = 8, .generation = 2, .runs = {{5, 4}, {6, 8}}}));
}

TEST_F(JournalDamageTest, AMissingRankIsNamed) {
  for (std::uint32_t number = 0; number < 3; ++number) {
    auto rank = Start(OptionsOf(number, 3, 5));
    Write(*rank, 1, 2, number);
  }
  EXPECT_TRUE(files_.RemoveFolder(kFolder + "/rank-1").ok());
  const Recovered recovered = Recover(files_);
  EXPECT_EQ(recovered.status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(recovered.status.message(), HasSubstr("rank 1 of 3"));
}

TEST_F(JournalDamageTest, ARankWhoseEndIsLostIsNamed) {
  auto zero = Start(OptionsOf(0, 2, 5));
  auto one = Start(OptionsOf(1, 2, 5));
  for (std::uint64_t round = 1; round <= 4; ++round) {
    Write(*zero, round, round, 0);
    Write(*one, round, round, 1);
    zero->journal->NoteComplete(round);
  }
  const std::string path = kFolder + "/rank-1/" + ToString(SegmentName{1, 5});
  Bytes bytes = files_.Contents(path);
  bytes.resize(kSegmentHeaderBytes + BytesOfRecord(BodyOf(1, 1).size()));
  files_.SetContents(path, bytes);
  const Recovered recovered = Recover(files_);
  EXPECT_EQ(recovered.status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(recovered.status.message(), HasSubstr("rank 1 ends with round 1 in " + path));
  EXPECT_EQ(Recover(files_, 3).set.LastCompleteRound(), 3);
}

TEST_F(JournalDamageTest, AMissingSegmentIsFound) {
  auto rank = Start(OptionsOf(0, 1, 5));
  for (std::uint64_t round = 1; round <= 3; ++round) {
    rank->journal->BeginSegment(round);
    Write(*rank, round, round);
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
  Run(6, {.incarnation = 5, .round = 3, .generation = 1}, 4, 5);
  EXPECT_TRUE(files_.Remove(kFirst).ok());
  EXPECT_EQ(Recover(files_).status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(Recover(files_, 3).rounds, RoundsFromTo(4, 5));
}

TEST_F(JournalDamageTest, AnotherLineageIsRefused) {
  Run(5, {}, 1, 3);
  const Recovered recovered = Recover(files_, 0, kLineage + 1);
  EXPECT_EQ(recovered.status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(recovered.status.message(), HasSubstr(kFirst));
}

TEST_F(JournalDamageTest, AFileInAnotherRanksFolderIsRefused) {
  Run(5, {}, 1, 3);
  EXPECT_TRUE(files_.MakeFolder(kFolder + "/rank-1").ok());
  files_.SetContents(kFolder + "/rank-1/" + ToString(SegmentName{1, 5}), files_.Contents(kFirst));
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
  const Recovered recovered = Recover(files_);
  EXPECT_EQ(recovered.status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(recovered.status.message(), HasSubstr("format version 2"));
}

TEST_F(JournalDamageTest, AStartThatWasBrokenOffIsPassedOver) {
  for (std::uint32_t number = 0; number < 2; ++number) {
    auto rank = Start(OptionsOf(number, 2, 5));
    Write(*rank, 1, 3, number);
  }
  const JournalPosition follows = Recover(files_).set.Next();
  auto broken_off = Start(OptionsOf(1, 2, 6, follows));  // rank 0 never came so far
  const Recovered recovered = Recover(files_);
  EXPECT_TRUE(recovered.status.ok()) << recovered.status.message();
  EXPECT_EQ(recovered.rounds, RoundsFromTo(1, 3));
  EXPECT_EQ(recovered.set.Next(),
            (JournalPosition{.incarnation = 5, .round = 3, .generation = 2, .runs = {{5, 3}}}));
  for (std::uint32_t number = 0; number < 2; ++number) {
    auto rank = Start(OptionsOf(number, 2, 7, recovered.set.Next()));
    Write(*rank, 4, 5, number);
  }
  EXPECT_EQ(Recover(files_).rounds, RoundsFromTo(1, 5));
}

TEST_F(JournalDamageTest, AFolderThatIsNotThereHoldsNothing) {
  const Recovered recovered = Recover(files_, 9);
  EXPECT_TRUE(recovered.status.ok());
  EXPECT_EQ(recovered.set.Next(), (JournalPosition{.incarnation = 0, .round = 9, .generation = 0}));
  EXPECT_TRUE(SyncJournals(files_, kFolder).ok());
}

}  // namespace
}  // namespace slotwise
