// Tests which checkpoint a running server builds on after the disk has lost some of them.
#include "server/engine/checkpointing.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "server/engine/operations/checkpoint_requests.h"
#include "tests/durability/sim_files.h"
#include "tests/durability/watched_files.h"
#include "tests/support/test_secret.h"

namespace slotwise::test {
namespace {

using ::testing::HasSubstr;

constexpr std::uint32_t kDim = 2;

// The only rank of a server, whose rounds are made by hand.
class Saver {
 public:
  struct Options {
    std::uint32_t max_deltas = 16;
    std::size_t rows = 0;
    std::size_t buffer_bytes = 4096;
    std::chrono::seconds every{0};
    std::chrono::milliseconds age{0};  // of what the start has found
    bool journal = false;
  };
  explicit Saver(DurabilityMode mode) : Saver(mode, Options()) {}
  Saver(DurabilityMode mode, const Options& with) {
    EXPECT_TRUE(files_.MakeFolder("data").ok());
    EXPECT_TRUE(files_.MakeFolder("data/checkpoints").ok());
    Table table;
    table.info.id = tables_.NewId();
    table.info.options.name = TableName("ads");
    table.info.options.dim = kDim;
    table.shard = std::move(
        *device_->MakeShard(table.info.options, {.secret = kTestSecret, .max_rows = kMaxRowsPerShard}));
    table.learning_rate = 0.5F;
    table.generation = 5;
    std::vector<Key> keys;
    for (std::size_t row = 0; row < with.rows; ++row) keys.push_back(Key{row});
    EXPECT_TRUE(table.shard->Load(keys, std::vector<float>(keys.size() * kDim).data()).ok());
    EXPECT_TRUE(table.shard->TrackChanges(1000).ok());
    tables_.Add(std::move(table));
    DurabilityOptions options;
    options.mode = mode;
    options.folder = "data";
    options.interval = std::chrono::seconds(2);
    options.files = &watched_;
    options.max_deltas = with.max_deltas;
    options.checkpoint_buffer_bytes = with.buffer_bytes;
    options.checkpoint_every = with.every;
    options.unix_time = [] { return std::uint64_t{1'700'000'000}; };
    options.still_ours = [this] { return ours ? Status() : FailedPrecondition("the lock is gone"); };
    options.on_failure = [this](const std::string& why) { end_of_process = why; };
    CheckpointBase base;
    base.lineage = 77;
    base.age = with.age;
    if (with.journal) {
      auto journal =
          Journal::Start(files_, {.folder = kJournal, .instance = 7, .lineage = 77, .seed = 3, .follows = {}},
                         {.on_durable = [](std::uint64_t) {}, .on_failure = [](const std::string&) {}});
      EXPECT_TRUE(journal.ok()) << journal.status().message();
      journal_ = std::move(*journal);
    }
    checkpointing_.Use(options, 7, base, journal_.get());
  }

  std::atomic<bool> ours = true;  // the folder is
  std::string end_of_process;     // why it has to end

  // A round changes state at a time.
  void Change(std::uint64_t now_ms) {
    changed_ = ++round_;
    if (journal_ != nullptr) {
      EXPECT_TRUE(journal_->Reserve(0).ok());
      journal_->Append(round_, 1, {});
      journal_->WriteQueued();
    }
    Decide(now_ms);
  }
  // A decision at a time at which no round changes state.
  void Decide(std::uint64_t now_ms) { checkpointing_.OnDecision(now_ms, changed_); }

  // Saves, until rank 0 tells of a phase's end that was not handed to OnEvent yet.
  SavedCheckpoint Save() {
    const Result<SavedCheckpoint> saved = TrySave();
    EXPECT_TRUE(saved.ok()) << saved.status().message();
    return saved.ok() ? *saved : SavedCheckpoint();
  }
  Result<SavedCheckpoint> TrySave() {
    Result<SavedCheckpoint> saved = Unavailable("no answer");
    checkpointing_.Save(++round_, true, DataType::kFloat32,
                        [&](const Result<SavedCheckpoint>& result) { saved = result; });
    HandleEvent(CheckpointEvent::kWritten);
    HandleEvent(CheckpointEvent::kPublished);
    return saved;
  }
  // Returns whether what was saved is what was written.
  bool Verify() { return HandleEvent(CheckpointEvent::kVerified); }
  SavedCheckpoint SaveAndVerify() {
    SavedCheckpoint saved = Save();
    EXPECT_TRUE(Verify());
    return saved;
  }

  // Saves while the engine is as busy as one whose trainer's next step always comes: it is idle at each
  // millisecond but every tenth. Returns the one at which all rows have been written.
  std::uint64_t MillisecondsOfSaveWhileBusy() {
    checkpointing_.Advance(0, false);
    checkpointing_.Save(++round_, false, DataType::kFloat32, [](const Result<SavedCheckpoint>&) {});
    EXPECT_EQ(checkpointing_.Advance(0, false), Checkpointing::Next::kInATick);
    std::uint64_t now_ms = 0;
    HandleEvent(CheckpointEvent::kWritten, [&] {
      ++now_ms;
      checkpointing_.Advance(now_ms, now_ms % 10 != 0);
    });
    return now_ms;
  }
  // Saves while the engine has nothing else to do and no time passes. Returns whether all rows are written.
  bool IsSavedAtOnce() {
    checkpointing_.Save(++round_, false, DataType::kFloat32, [](const Result<SavedCheckpoint>&) {});
    checkpointing_.Advance(0, false);  // behind the checkpoint's own round
    return HandleEvent(CheckpointEvent::kWritten);
  }

  // Whether a checkpoint is asked for at a time. It is as if it were refused, so it may be asked for again.
  bool AsksAt(std::uint64_t now_ms) {
    checkpointing_.Advance(now_ms, true);
    const std::scoped_lock lock(mutex_);
    if (asked_.empty()) return false;
    asked_.front().done(Unavailable("refused by the test"));
    asked_.clear();
    return true;
  }

  // Whether rows can be read from now on.
  void ReadBack(bool can) {
    watched_.before_open = [can](const std::string& path) {
      return can || !path.ends_with("rows.npy") ? Status() : FailedPrecondition(path + " is lost");
    };
  }
  // Hands an event of that kind to the round that it is for, and returns whether it is a good one.
  bool HandleEvent(CheckpointEvent event) {
    return HandleEvent(event, [this] { checkpointing_.Advance(0, true); });
  }
  template <class Advance>
  bool HandleEvent(CheckpointEvent event, const Advance& advance) {
    ++round_;
    const auto is_of_kind = [&](const CheckpointEventRequest& told) { return told.event == event; };
    for (int tries = 0; tries < 60'000; ++tries) {
      advance();
      std::unique_lock lock(mutex_);
      const auto has_come = [&] { return std::ranges::any_of(events_, is_of_kind); };
      if (!news_.wait_for(lock, std::chrono::milliseconds(1), has_come)) continue;
      const auto told = std::ranges::find_if(events_, is_of_kind);
      const bool failed = told->failed;
      events_.erase(told);
      lock.unlock();
      checkpointing_.OnEvent(event, failed);
      return !failed;
    }
    ADD_FAILURE() << "no event came within a minute";
    return false;
  }
  void Damage(const std::string& path) {
    auto file = files_.OpenToWrite("data/checkpoints/" + path);
    ASSERT_TRUE(file.ok()) << file.status().message();
    const std::byte other{0xA5};
    ASSERT_TRUE((*file)->WriteAt(200, std::array{std::span(&other, 1)}).ok());
  }
  void LoseFile(const std::string& path) { files_.Lose("data/checkpoints/" + path); }
  void LoseFolder(const std::string& id) { EXPECT_TRUE(files_.RemoveFolder("data/checkpoints/" + id).ok()); }
  std::size_t Count() { return Checkpoints(files_, "data/checkpoints").List()->size(); }
  Status MayUpdate() const { return checkpointing_.MayUpdate(); }
  CheckpointStats Stats() const { return *checkpointing_.Stats(); }
  // The first round that the journal may have.
  std::uint64_t JournalBegins() {
    std::uint64_t first = ~std::uint64_t{0};
    const auto names = files_.List(kJournal + "/rank-0");
    for (const std::string& name : *names) first = std::min(first, ParseSegmentName(name)->first_round);
    return first;
  }
  Status CanBeRestored(const std::string& id) {
    return Checkpoints(files_, "data/checkpoints").CheckChain(id);
  }

 private:
  inline static const std::string kJournal = "data/journal";

  void Take(Request request) {
    const std::scoped_lock lock(mutex_);
    if (request.Is<CheckpointEventRequest>()) events_.push_back(request.As<CheckpointEventRequest>());
    if (request.Is<SaveCheckpointRequest>()) asked_.push_back(request.As<SaveCheckpointRequest>());
    news_.notify_all();
  }

  SimFiles files_;
  WatchedFiles watched_{files_};
  std::mutex mutex_;
  std::condition_variable news_;
  std::deque<CheckpointEventRequest> events_;
  std::deque<SaveCheckpointRequest> asked_;
  const std::unique_ptr<Device> device_ = MakeCpuDevice(1, 1);
  const std::unique_ptr<Collective> collective_ = MakeSoloCollective();
  Tables tables_{10};
  std::uint64_t round_ = 0;
  std::uint64_t changed_ = 0;
  std::unique_ptr<Journal> journal_;
  Checkpointing checkpointing_{*device_, *collective_, tables_,
                               [this](Request request) { Take(std::move(request)); }, [] {}};
};

// An engine that waits for its trainer's next step is idle, and not at rest.
TEST(ACheckpoint, IsReadGentlyByAProcessorThatWasBusy) {
  constexpr std::size_t kRows = std::size_t{1} << 20;
  constexpr std::size_t kBytesAMillisecond = std::size_t{48} << 10;
  Saver server(DurabilityMode::kNone, {.rows = kRows, .buffer_bytes = std::size_t{1} << 20});
  // What is asked for last may be a little more.
  EXPECT_GE(server.MillisecondsOfSaveWhileBusy(), kRows * kDim * sizeof(float) / kBytesAMillisecond * 9 / 10);
}

// The round that began it says nothing of a trainer.
TEST(ACheckpoint, IsReadAtOnceByAProcessorThatWasAtRest) {
  Saver server(DurabilityMode::kNone, {.rows = std::size_t{1} << 20, .buffer_bytes = std::size_t{1} << 20});
  EXPECT_TRUE(server.IsSavedAtOnce());
}

TEST(ACheckpoint, OfWhichTheBaseIsGoneIsFollowedByABase) {
  Saver server(DurabilityMode::kNone);
  const std::string base = server.SaveAndVerify().id;
  EXPECT_TRUE(server.SaveAndVerify().delta);
  server.LoseFolder(base);
  EXPECT_TRUE(server.Save().delta);
  EXPECT_EQ(server.Stats().unreadable, 0U);
  EXPECT_FALSE(server.Verify());
  EXPECT_EQ(server.Stats().unreadable, 1U);
  EXPECT_EQ(server.Stats().written, 3U);
  EXPECT_FALSE(server.Stats().under_way);
  EXPECT_FALSE(server.AsksAt(1'000'000)) << "no checkpoints were asked for";
  const SavedCheckpoint next = server.SaveAndVerify();
  EXPECT_FALSE(next.delta);
  EXPECT_TRUE(server.CanBeRestored(next.id).ok());
  EXPECT_TRUE(server.SaveAndVerify().delta);
}

TEST(ACheckpoint, OfWhichAFileOfTheBaseIsGoneIsFollowedByABase) {
  Saver server(DurabilityMode::kNone);
  server.LoseFile(server.SaveAndVerify().id + "/table-1/rank-0.rows.npy");
  EXPECT_TRUE(server.Save().delta);
  EXPECT_FALSE(server.Verify());
  EXPECT_FALSE(server.SaveAndVerify().delta);
}

TEST(ACheckpoint, ThatCannotBeReadBackIsFollowedByABase) {
  Saver server(DurabilityMode::kNone);
  server.SaveAndVerify();
  server.ReadBack(false);
  EXPECT_TRUE(server.Save().delta);
  EXPECT_FALSE(server.Verify());
  server.ReadBack(true);
  EXPECT_FALSE(server.SaveAndVerify().delta);
}

// A chain of 3, of which the base is damaged then: it is folded once it has 4 links.
std::unique_ptr<Saver> DamagedChain(DurabilityMode mode) {
  auto server = std::make_unique<Saver>(mode, Saver::Options{.max_deltas = 8});
  server->Change(1);
  const std::string base = server->SaveAndVerify().id;
  for (std::uint64_t now = 2; now < 4; ++now) {
    server->Change(now);
    EXPECT_TRUE(server->SaveAndVerify().delta);
  }
  server->Damage(base + "/table-1/rank-0.starts.npy");
  server->Change(4);
  EXPECT_TRUE(server->SaveAndVerify().delta) << "only sizes are looked at";
  return server;
}

TEST(AChain, WhoseFoldFindsDamageIsFollowedByABase) {
  const auto server = DamagedChain(DurabilityMode::kInterval);
  EXPECT_TRUE(server->MayUpdate().ok());
  EXPECT_FALSE(server->HandleEvent(CheckpointEvent::kDamaged));
  EXPECT_FALSE(server->HandleEvent(CheckpointEvent::kCompacted));
  EXPECT_EQ(server->MayUpdate().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(server->AsksAt(5));
  EXPECT_FALSE(server->SaveAndVerify().delta);
  EXPECT_TRUE(server->MayUpdate().ok());
}

TEST(AChain, WhoseFoldFindsDamageWhileADeltaIsWrittenIsFollowedByABase) {
  const auto server = DamagedChain(DurabilityMode::kNone);
  EXPECT_TRUE(server->Save().delta);
  EXPECT_FALSE(server->HandleEvent(CheckpointEvent::kDamaged));
  EXPECT_FALSE(server->HandleEvent(CheckpointEvent::kCompacted));
  EXPECT_TRUE(server->Verify()) << "the delta itself is what was written";
  EXPECT_FALSE(server->SaveAndVerify().delta);
  EXPECT_TRUE(server->SaveAndVerify().delta);
}

TEST(AChain, WhoseFoldSucceedsGoesOn) {
  Saver server(DurabilityMode::kNone, {.max_deltas = 8});
  for (int link = 0; link < 4; ++link) server.SaveAndVerify();
  EXPECT_TRUE(server.HandleEvent(CheckpointEvent::kCompacted));
  EXPECT_TRUE(server.SaveAndVerify().delta);
}

TEST(ACheckpoint, IsNotPublishedInAFolderThatIsAnothersByNow) {
  Saver server(DurabilityMode::kNone);
  server.SaveAndVerify();
  server.ours = false;
  EXPECT_FALSE(server.TrySave().ok());
  EXPECT_EQ(server.end_of_process, "the lock is gone");
  EXPECT_EQ(server.Count(), 1);
}

// However often a server starts, a checkpoint is made every so many seconds.
TEST(ATimer, GoesOnWhereTheStartHasFoundIt) {
  Saver server(DurabilityMode::kSync, {.every = std::chrono::seconds(60), .age = std::chrono::seconds(50)});
  server.Change(1000);
  EXPECT_FALSE(server.AsksAt(10'999));
  EXPECT_TRUE(server.AsksAt(11'000));
  server.Decide(20'000);
  server.SaveAndVerify();
  EXPECT_FALSE(server.AsksAt(90'000)) << "nothing has changed";
  server.Decide(90'000);
  server.Change(100'000);
  EXPECT_FALSE(server.AsksAt(149'999)) << "at 90 s the newest one had the state of then";
  EXPECT_TRUE(server.AsksAt(150'000));
}

TEST(ATimer, ThatIsOverdueAtTheStartAsksAtOnce) {
  Saver server(DurabilityMode::kNone, {.every = std::chrono::seconds(60), .age = std::chrono::hours(1)});
  server.Decide(500);
  EXPECT_FALSE(server.AsksAt(500)) << "nothing has changed";
  server.Decide(9000);
  server.Change(9001);
  EXPECT_TRUE(server.AsksAt(9001));
  server.SaveAndVerify();
  server.Change(9002);
  EXPECT_FALSE(server.AsksAt(69'000));
  EXPECT_TRUE(server.AsksAt(69'001));
}

// Updates before the start are in the journal, or no client was promised any more of them.
TEST(AnInterval, PromisesNothingOfTheTimeBeforeTheStart) {
  Saver server(DurabilityMode::kInterval, {.age = std::chrono::hours(1)});
  server.Change(5000);
  EXPECT_TRUE(server.MayUpdate().ok());
  server.Decide(7000);
  EXPECT_TRUE(server.MayUpdate().ok());
  server.Decide(7001);
  EXPECT_EQ(server.MayUpdate().code(), StatusCode::kUnavailable);
}

TEST(AnInterval, RefusesUpdatesFromWhenABaseIsGoneUntilANewOneWasReadBack) {
  Saver server(DurabilityMode::kInterval);
  server.Change(100);
  const std::string base = server.SaveAndVerify().id;
  server.Change(200);
  server.LoseFolder(base);
  const std::string delta = server.Save().id;
  EXPECT_TRUE(server.MayUpdate().ok());
  EXPECT_FALSE(server.Verify());
  EXPECT_EQ(server.MayUpdate().code(), StatusCode::kUnavailable);
  EXPECT_THAT(server.MayUpdate().message(), HasSubstr("checkpoint " + delta));
  EXPECT_TRUE(server.AsksAt(201)) << "nothing has changed, and what is there is lost";
  EXPECT_FALSE(server.Save().delta);
  EXPECT_FALSE(server.MayUpdate().ok());
  EXPECT_TRUE(server.Verify());
  EXPECT_TRUE(server.MayUpdate().ok());
  EXPECT_FALSE(server.AsksAt(100'000)) << "nothing has changed";
}

TEST(AnInterval, DoesNotWriteWithoutPauseToADiskThatLosesAll) {
  Saver server(DurabilityMode::kInterval);
  server.ReadBack(false);
  server.Change(100);
  server.Save();
  EXPECT_FALSE(server.Verify());
  EXPECT_TRUE(server.AsksAt(101));
  server.Change(110);
  server.Save();
  EXPECT_FALSE(server.Verify());
  EXPECT_FALSE(server.AsksAt(111));
  EXPECT_TRUE(server.AsksAt(1110)) << "half of the interval is over";
}

TEST(AJournalsServer, AsksForABaseAtOnceIfOneIsGone) {
  Saver server(DurabilityMode::kSync);
  const std::string base = server.SaveAndVerify().id;
  EXPECT_FALSE(server.AsksAt(1));
  server.LoseFolder(base);
  server.Save();
  EXPECT_FALSE(server.Verify());
  EXPECT_TRUE(server.MayUpdate().ok()) << "the journal has them";
  EXPECT_TRUE(server.AsksAt(2));
}

// Should the newest checkpoint turn out to be lost, recovery falls back on the one before it, and goes on
// from there by the journal. A checkpoint that was never read back is no such one.
TEST(AJournalsServer, KeepsTheJournalFromTheCheckpointBeforeTheNewest) {
  Saver server(DurabilityMode::kSync, {.journal = true});
  server.Change(1);
  const std::uint64_t first = OriginOf(server.SaveAndVerify().id)->round;
  server.Change(2);
  server.ReadBack(false);
  server.Save();
  EXPECT_FALSE(server.Verify());
  server.ReadBack(true);
  server.Change(3);
  server.SaveAndVerify();
  server.Change(4);
  EXPECT_EQ(server.JournalBegins(), first + 1);
  server.SaveAndVerify();
  EXPECT_GT(server.JournalBegins(), first + 1) << "what no checkpoint needs goes";
}

}  // namespace
}  // namespace slotwise::test
