#include "server/durability/journal.h"

#include <gmock/gmock.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "server/durability/journal_thread.h"
#include "tests/durability/journal_rig.h"
#include "tests/durability/watched_files.h"
#include "tests/support/status.h"

namespace slotwise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(JournalTest, WhatSeveralRanksWroteIsReadAgain) {
  std::vector<std::unique_ptr<RankOfTest>> ranks;
  for (std::uint32_t rank = 0; rank < 3; ++rank) ranks.push_back(Start(OptionsOf(rank, 3, 5)));
  for (std::uint64_t round = 1; round <= 40; ++round) {
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
      ranks[rank]->Append(round);
      if (round % (rank + 1) == 0) ranks[rank]->journal->WriteQueued();
    }
  }
  for (auto& rank : ranks) rank->journal->WriteQueued();
  const Recovered recovered = Recover(files_);
  EXPECT_TRUE(recovered.status.ok()) << recovered.status.message();
  EXPECT_EQ(recovered.rounds, RoundsFromTo(1, 40));
  EXPECT_EQ(recovered.set.Next(),
            (JournalPosition{.instance = 5, .round = 40, .run_number = 1, .runs = {{5, 40}}}));
}

TEST_F(JournalTest, RecordsThatQueuedUpShareAWriteAndASync) {
  auto rank = Start();
  ASSERT_TRUE(rank->journal->Reserve(1000).ok());
  for (std::uint64_t round = 1; round <= 6; ++round) rank->journal->Append(round, 0, {});
  const std::uint64_t before = files_.operations();
  EXPECT_TRUE(rank->journal->WriteQueued());
  EXPECT_EQ(files_.operations(), before + 2);
  EXPECT_THAT(rank->published, ElementsAre(6));
  EXPECT_EQ(rank->journal->durable(), 6);
  EXPECT_FALSE(rank->journal->WriteQueued());
  EXPECT_EQ(files_.operations(), before + 2);
}

TEST_F(JournalTest, NothingIsDurableBeforeItIsSynced) {
  auto rank = Start();
  rank->Append(1);
  EXPECT_EQ(rank->journal->durable(), 0);
  EXPECT_GT(rank->journal->queued_bytes(), 0);
  files_.FailAt(files_.operations() + 2, SimFiles::Fault::kBroken);
  rank->journal->WriteQueued();
  EXPECT_EQ(rank->journal->durable(), 0);
  EXPECT_THAT(rank->published, IsEmpty());
  EXPECT_THAT(rank->failures, ElementsAre(HasSubstr("sync data/journal/rank-0/")));
}

TEST_F(JournalTest, NothingIsPublishedInAFolderThatIsAnothersByNow) {
  bool ours = true;
  JournalOptions options = OptionsOf(0, 1, 5);
  std::uint64_t asked_at = 0;  // operations
  options.still_ours = [&] {
    asked_at = files_.operations();
    return ours ? Status() : FailedPrecondition("the lock is gone");
  };
  auto rank = Start(options);
  rank->Write(1);
  EXPECT_THAT(rank->published, ElementsAre(1));
  ours = false;
  rank->Write(2);
  EXPECT_EQ(asked_at, files_.operations()) << "what is synced later, the other one may not find";
  EXPECT_THAT(rank->published, ElementsAre(1));
  EXPECT_THAT(rank->failures, ElementsAre("the lock is gone"));
}

TEST_F(JournalTest, AFailedJournalNeverPublishesAgain) {
  auto rank = Start();
  rank->Append(1);
  rank->Append(2);
  files_.FailAt(files_.operations() + 2, SimFiles::Fault::kBroken);
  rank->journal->WriteQueued();
  rank->journal->Append(3, 0, {});
  EXPECT_FALSE(rank->journal->WriteQueued());
  EXPECT_EQ(rank->journal->Reserve(1).code(), StatusCode::kUnavailable);
  EXPECT_THAT(rank->published, IsEmpty());
  EXPECT_THAT(rank->failures, SizeIs(1));
}

TEST_F(JournalTest, WhatWaitsWhenAJournalFailsIsNotWritten) {
  auto rank = Start();
  rank->Append(1);
  rank->journal->BeginSegment(2);
  files_.SetCapacity(files_.used());
  rank->journal->Append(2, 0, PiecesOf(Bytes(2000)));  // without Reserve
  EXPECT_THAT(rank->failures, ElementsAre(HasSubstr("the journal in data/journal/rank-0 has no space")));
  rank->journal->WriteQueued();
  EXPECT_THAT(rank->published, IsEmpty());
  EXPECT_FALSE(rank->journal->WriteQueued());
}

TEST_F(JournalTest, PiecesStayUntilTheyAreWritten) {
  auto rank = Start();
  auto bytes = std::make_shared<const Bytes>(BodyOf(0, 1));
  const std::weak_ptr<const Bytes> watch = bytes;
  rank->journal->Append(1, KindOf(1), {{std::span(*bytes), bytes}});
  bytes.reset();
  EXPECT_FALSE(watch.expired());
  rank->journal->WriteQueued();
  EXPECT_TRUE(watch.expired());
  EXPECT_EQ(rank->journal->queued_bytes(), 0);
  EXPECT_EQ(Recover(files_).rounds, RoundsFromTo(1, 1));
}

TEST_F(JournalTest, AFullDiskRefusesARecordBeforeItIsAppended) {
  auto rank = Start();
  rank->Write(1);
  files_.SetCapacity(files_.used());
  test::ExpectStatus(rank->journal->Reserve(3000), StatusCode::kResourceExhausted,
                     "the journal in data/journal/rank-0 has no space");
  EXPECT_TRUE(rank->journal->Stats().blocked);
  EXPECT_EQ(rank->journal->Reserve(kMaxRecordBytes + 1).code(), StatusCode::kResourceExhausted);
  EXPECT_FALSE(rank->journal->Stats().blocked) << "the last one was not refused for the disk";
  EXPECT_EQ(rank->journal->Reserve(3000).code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(rank->journal->Stats().blocked);
  rank->Append(2);  // a small one fits into what was taken before
  EXPECT_FALSE(rank->journal->Stats().blocked);
  EXPECT_EQ(rank->journal->Reserve(kMaxRecordBytes + 1).code(), StatusCode::kResourceExhausted);
  EXPECT_FALSE(rank->journal->Stats().blocked) << "the disk has nothing to do with it";
  files_.SetCapacity(100000);
  rank->Append(3);
  EXPECT_TRUE(rank->journal->Reserve(3000).ok());
  rank->journal->WriteQueued();
  EXPECT_EQ(rank->journal->durable(), 3);
  EXPECT_EQ(Recover(files_).rounds, RoundsFromTo(1, 3));
}

TEST_F(JournalTest, WhatWasReservedIsWrittenOnADiskThatIsFullSince) {
  JournalOptions options = OptionsOf(0, 1, 5);
  options.reserve_bytes = 1;  // so no byte more than was asked for
  auto rank = Start(options);
  for (std::uint64_t round = 1; round <= 100; ++round) {
    files_.SetCapacity(1 << 20);
    if (round % 9 == 0) rank->journal->BeginSegment(round);
    ASSERT_TRUE(rank->journal->Reserve(BodyOf(0, round).size()).ok());
    files_.SetCapacity(0);
    rank->journal->Append(round, KindOf(round), PiecesOf(BodyOf(0, round)));
    if (round % 3 != 0) continue;
    rank->journal->WriteQueued();
    ASSERT_EQ(rank->journal->durable(), round);
  }
  EXPECT_THAT(rank->failures, IsEmpty());
  EXPECT_GT(Segments().size(), 10);
}

TEST_F(JournalTest, ASegmentThatGetsNoSpaceIsTriedAgain) {
  auto rank = Start();
  rank->Write(1);
  rank->journal->BeginSegment(2);
  files_.SetCapacity(files_.used() + 10);
  EXPECT_EQ(rank->journal->Reserve(10).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(rank->journal->Reserve(10).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(Recover(files_).rounds, RoundsFromTo(1, 1));
  files_.SetCapacity(1 << 20);
  rank->Write(2);
  EXPECT_THAT(Segments(), SizeIs(2));
  EXPECT_EQ(Recover(files_).rounds, RoundsFromTo(1, 2));
}

TEST_F(JournalTest, MoreThanMayWaitIsRefused) {
  JournalOptions options = OptionsOf(0, 1, 5);
  options.max_queued_bytes = 500;
  auto rank = Start(options);
  ASSERT_TRUE(rank->journal->Reserve(600).ok());  // alone, it may be larger
  const Bytes body(400);
  rank->journal->Append(1, 0, PiecesOf(body));
  test::ExpectStatus(rank->journal->Reserve(100), StatusCode::kUnavailable, "max_queued_bytes, 500");
  rank->journal->WriteQueued();
  EXPECT_TRUE(rank->journal->Reserve(100).ok());
  EXPECT_EQ(rank->journal->Reserve(kMaxRecordBytes + 1).code(), StatusCode::kResourceExhausted);
}

TEST_F(JournalTest, ASyncThatTakesLongRefusesWhatNeedsItsFile) {
  std::mutex mutex;
  std::condition_variable changed;
  bool stalls = false;
  bool syncing = false;
  WatchedFiles files(files_);
  files.before_change = [&](const std::string& operation, const std::string&) {
    std::unique_lock lock(mutex);
    if (operation != "sync" || !stalls) return Status();
    syncing = true;
    changed.notify_all();
    changed.wait(lock, [&] { return !stalls; });
    return Status();
  };
  JournalOptions options = OptionsOf(0, 1, 5);
  options.segment_bytes = 1 << 20;
  options.longest_wait = std::chrono::milliseconds(20);
  auto rank = test::Must(StartRank(files, options));
  Journal& journal = *rank->journal;
  {
    const std::scoped_lock lock(mutex);
    stalls = true;
  }
  ASSERT_TRUE(AppendRound(journal, 0, 1).ok());
  std::thread writer([&] { journal.WriteQueued(); });
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return syncing; });
  }
  for (int i = 0; i < 2; ++i) {
    const Status status = journal.Reserve(4000);  // more than there is space for
    test::ExpectStatus(status, StatusCode::kUnavailable,
                       "slower than what is pushed: a sync in data/journal/rank-0");
  }
  {
    const std::scoped_lock lock(mutex);
    stalls = false;
    changed.notify_all();
  }
  writer.join();
  EXPECT_TRUE(journal.Reserve(4000).ok());
  EXPECT_EQ(journal.durable(), 1U);
}

TEST_F(JournalTest, AFolderThatIsGoneIsNoTableThatIsNotThere) {
  WatchedFiles files(files_);
  JournalOptions options = OptionsOf(0, 1, 5);
  auto rank = test::Must(StartRank(files, options));
  Journal& journal = *rank->journal;
  ASSERT_TRUE(AppendRound(journal, 0, 1).ok());
  files.before_change = [](const std::string& operation, const std::string& path) {
    return operation == "create" ? NotFound("cannot make " + path) : Status();
  };
  journal.BeginSegment(2);
  test::ExpectStatus(journal.Reserve(10), StatusCode::kInternal,
                     "the journal in data/journal/rank-0 cannot go on: cannot make ");
}

TEST_F(JournalTest, SegmentsEndWhenTheyAreLarge) {
  auto rank = Start();
  for (std::uint64_t round = 1; round <= 60; ++round) rank->Append(round);
  rank->journal->WriteQueued();  // over all segments at once
  EXPECT_GT(Segments().size(), 3);
  std::uint64_t bytes = 0;
  for (const std::string& name : Segments()) bytes += files_.Contents(kFolder + "/rank-0/" + name).size();
  EXPECT_LE(bytes, 60 * 1264 + 4096);
  for (const std::string& name : Segments()) {
    EXPECT_LE(files_.Contents(kFolder + "/rank-0/" + name).size(), 4096 + 1024);
  }
  EXPECT_EQ(Recover(files_).rounds, RoundsFromTo(1, 60));
}

TEST_F(JournalTest, AClosedSegmentGivesItsSpaceBack) {
  auto rank = Start();
  rank->Write(1);
  rank->journal->BeginSegment(2);
  rank->Write(2);
  EXPECT_EQ(files_.Contents(kFolder + "/rank-0/" + Segments()[0]).size(), RecordAt(2));
}

TEST_F(JournalTest, SegmentsThatACheckpointCoversGo) {
  auto rank = Start();
  for (std::uint64_t round = 1; round <= 9; ++round) {
    if (round % 3 == 1) rank->journal->BeginSegment(round);
    rank->Write(round);
  }
  ASSERT_THAT(Segments(), SizeIs(3));
  EXPECT_TRUE(rank->journal->RemoveSegmentsBefore(5).ok());
  EXPECT_THAT(Segments(), SizeIs(2));
  EXPECT_EQ(Recover(files_, 5).rounds, RoundsFromTo(6, 9));
  EXPECT_TRUE(rank->journal->RemoveSegmentsBefore(9).ok());
  EXPECT_THAT(Segments(), SizeIs(1));
  EXPECT_EQ(Recover(files_, 6).rounds, RoundsFromTo(7, 9));
  test::ExpectStatus(Recover(files_, 5).status, StatusCode::kDataLoss, Segments()[0]);
}

TEST_F(JournalTest, ASegmentStaysUntilTheNextOneIsOnDisk) {
  auto rank = Start();
  rank->Write(1);
  rank->journal->BeginSegment(2);
  rank->Append(2);
  EXPECT_TRUE(rank->journal->RemoveSegmentsBefore(1).ok());
  EXPECT_THAT(Segments(), SizeIs(2));
  rank->journal->WriteQueued();
  EXPECT_TRUE(rank->journal->RemoveSegmentsBefore(1).ok());
  EXPECT_THAT(Segments(), SizeIs(1));
}

TEST_F(JournalTest, EarlierRunsSegmentsGoFromAllRanksFolders) {
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    auto earlier = Start(OptionsOf(rank, 3, 5));
    earlier->Write(1);
  }
  const JournalPosition follows = Recover(files_).set.Next();
  auto zero = Start(OptionsOf(0, 2, 6, follows));
  auto one = Start(OptionsOf(1, 2, 6, follows));
  EXPECT_TRUE(zero->journal->RemoveSegmentsBefore(0).ok());
  EXPECT_THAT(Segments(0), SizeIs(2));
  EXPECT_TRUE(zero->journal->RemoveSegmentsBefore(1).ok());
  EXPECT_THAT(Segments(0), SizeIs(1));
  EXPECT_THAT(Segments(1), SizeIs(2));
  EXPECT_THAT(Segments(2), IsEmpty());
  EXPECT_EQ(Recover(files_, 1).set.LastCompleteRound(), 1);
  EXPECT_TRUE(one->journal->RemoveSegmentsBefore(1).ok());
  EXPECT_THAT(Segments(1), SizeIs(1));
}

// A server in a crash loop: each run ends soon after its only checkpoint, which a later run then builds on.
TEST_F(JournalTest, EarlierRunsGoOneAfterTheOther) {
  std::uint64_t covered = 0;
  for (std::uint64_t run = 1; run <= 6; ++run) {
    const Recovered recovered = Recover(files_, covered);
    ASSERT_TRUE(recovered.status.ok()) << recovered.status.message();
    const std::uint64_t last = recovered.set.LastCompleteRound();
    EXPECT_EQ(recovered.rounds, RoundsFromTo(covered + 1, last));
    auto rank = Start(OptionsOf(0, 1, 4 + run, recovered.set.Next()));
    rank->Write(last + 1);
    rank->journal->BeginSegment(last + 2);
    EXPECT_TRUE(rank->journal->RemoveSegmentsBefore(covered).ok());  // that of this run was read back
    covered = last + 1;
    rank->Write(last + 2);
    // The last three runs: what the checkpoint before this run's lacks, and this one's two segments.
    EXPECT_LE(Segments().size(), 4U) << run;
  }
}

TEST_F(JournalTest, AThreadWritesWhatIsAppended) {
  auto rank = Start();
  {
    const JournalThread thread(*rank->journal);
    for (std::uint64_t round = 1; round <= 500; ++round) rank->Append(round);
  }
  EXPECT_EQ(rank->journal->durable(), 500);
  EXPECT_EQ(Recover(files_).rounds, RoundsFromTo(1, 500));
}

// Recovery sees the mark: without the last record it would not start.
TEST_F(JournalTest, AThreadMarksWhatAllRanksHave) {
  JournalOptions options = OptionsOf(0, 1, 5);
  options.mark_after = std::chrono::milliseconds(1);
  auto rank = Start(options);
  const std::string path = kFolder + "/rank-0/" + Segments().front();
  const auto is_marked = [&] {
    const Bytes bytes = files_.Contents(path);
    return DecodeMark(std::span(bytes).subspan(RecordAt(2)).first<kRecordHeaderBytes>(), options.seed)
        .has_value();
  };
  {
    const JournalThread thread(*rank->journal);
    rank->Append(1);
    while (rank->journal->durable() < 1) std::this_thread::yield();
    EXPECT_FALSE(is_marked()) << "it was not said that all ranks have it";
    rank->journal->NoteComplete(1);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!is_marked() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    EXPECT_TRUE(is_marked());
  }
}

TEST_F(JournalTest, AThreadMarksAtItsEnd) {
  JournalOptions options = OptionsOf(0, 1, 5);
  options.mark_after = std::chrono::hours(1);
  auto rank = Start(options);
  {
    const JournalThread thread(*rank->journal);
    rank->Append(1);
    while (rank->journal->durable() < 1) std::this_thread::yield();
    rank->journal->NoteComplete(1);
  }
  const Bytes bytes = files_.Contents(kFolder + "/rank-0/" + Segments().front());
  const auto mark =
      DecodeMark(std::span(bytes).subspan(RecordAt(2)).first<kRecordHeaderBytes>(), options.seed);
  ASSERT_TRUE(mark);
  EXPECT_EQ(mark->complete, 1U);
}

TEST_F(JournalTest, OptionsThatMakeNoSenseAreRefused) {
  EXPECT_EQ(StartRank(files_, OptionsOf(2, 2, 5)).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(StartRank(files_, OptionsOf(0, 2, 0)).status().code(), StatusCode::kInvalidArgument);
  JournalOptions large = OptionsOf(0, 1, 5);  // no reader would take its segments
  large.segment_bytes = kMaxSegmentBytes;
  EXPECT_EQ(StartRank(files_, large).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace slotwise
