// Tests the control path's calls about checkpoints over real gRPC, on files that wait or fail when told.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "server/durability/checkpoints.h"
#include "server/durability/file_system.h"
#include "server/rpc/checkpoint_service.h"
#include "tests/durability/watched_files.h"
#include "tests/rpc/messages.h"
#include "tests/rpc/rpc_server_fixture.h"
#include "tests/support/status.h"
#include "tests/support/temporary_folder.h"

namespace slotwise {
namespace {

using std::chrono::milliseconds;

// The system's files. While they are held, a thread that opens or makes a file waits.
class HeldFiles final : public FileSystem {
 public:
  void Hold() {
    const std::scoped_lock lock(mutex_);
    held_ = true;
  }
  void Release() {
    const std::scoped_lock lock(mutex_);
    held_ = false;
    changed_.notify_all();
  }
  void AwaitWaiting(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ >= count; });
  }
  // From now on the system refuses to open a file of that name.
  void Forbid(const std::string& name) {
    const std::scoped_lock lock(mutex_);
    forbidden_ = name;
  }
  // From now on nothing new can be written.
  void FillUp() {
    const std::scoped_lock lock(mutex_);
    full_ = true;
  }

  Result<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    Enter();
    const std::scoped_lock lock(mutex_);
    if (full_) return ResourceExhausted("create " + path + ": No space left on device");
    return SystemFiles().Create(path);
  }
  Result<std::unique_ptr<WritableFile>> OpenToWrite(const std::string& path) override {
    return SystemFiles().OpenToWrite(path);
  }
  Result<std::unique_ptr<ReadableFile>> Open(const std::string& path) override {
    Enter();
    const std::scoped_lock lock(mutex_);
    if (!forbidden_.empty() && path.ends_with(forbidden_))
      return Unavailable("cannot open " + path + ": Permission denied");
    return SystemFiles().Open(path);
  }
  Status Rename(const std::string& from, const std::string& to) override {
    return SystemFiles().Rename(from, to);
  }
  Status Remove(const std::string& path) override { return SystemFiles().Remove(path); }
  Status RemoveFolder(const std::string& path) override { return SystemFiles().RemoveFolder(path); }
  Status MakeFolder(const std::string& path) override { return SystemFiles().MakeFolder(path); }
  Result<std::vector<std::string>> List(const std::string& path) override { return SystemFiles().List(path); }
  Status SyncFolder(const std::string& path) override { return SystemFiles().SyncFolder(path); }

 private:
  void Enter() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !held_; });
    --waiting_;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;
  bool full_ = false;
  std::string forbidden_;
  int waiting_ = 0;
};

class CheckpointCallsTest : public RpcServerTest {
 protected:
  ~CheckpointCallsTest() override {
    files_.Release();
    if (server_) server_->Shutdown(milliseconds(5000));
    StopEngine();  // which uses the files
  }

  // A server with a data folder and a table, which has rows of 2 keys.
  void OpenWithData() {
    durability_.folder = folder_.string();
    durability_.files = &files_;
    test::Must(engine_->Recover(durability_));
    OpenWithAds();
    v1::LookupRequest lookup = SmallLookup();
    lookup.set_mode(v1::LOOKUP_MODE_TRAIN);
    ASSERT_TRUE(Ask(embedding_, &Embedding::Lookup, lookup).ok());
  }

  // From now on only callers read files: the engine no longer verifies what it has written.
  void StopEngine() {
    engine_->RequestStop();
    if (run_.joinable()) run_.join();
  }

  grpc::Status Save(bool delta = false, v1::SaveCheckpointReply* reply = nullptr) {
    v1::SaveCheckpointRequest request;
    request.set_delta(delta);
    return Ask(admin_, &Admin::SaveCheckpoint, request, reply);
  }
  v1::ListCheckpointsReply Listed() {
    v1::ListCheckpointsReply reply;
    EXPECT_TRUE(Ask(admin_, &Admin::ListCheckpoints, {}, &reply).ok());
    return reply;
  }
  grpc::Status Describe(const std::string& id, v1::DescribeCheckpointReply* reply = nullptr) {
    v1::DescribeCheckpointRequest request;
    request.set_id(id);
    return Ask(admin_, &Admin::DescribeCheckpoint, request, reply);
  }
  grpc::Status Load(const std::string& id, v1::LoadCheckpointReply* reply = nullptr) {
    v1::LoadCheckpointRequest request;
    request.set_id(id);
    return Ask(admin_, &Admin::LoadCheckpoint, request, reply);
  }
  grpc::Status Verify(const std::string& id, grpc::ClientContext& context) {
    v1::VerifyCheckpointRequest request;
    request.set_id(id);
    v1::VerifyCheckpointReply reply;
    return admin_->VerifyCheckpoint(&context, request, &reply);
  }
  grpc::Status Verify(const std::string& id) {
    grpc::ClientContext context;
    return Verify(id, context);
  }
  std::string Saved(bool delta = false) {
    v1::SaveCheckpointReply reply;
    const grpc::Status status = Save(delta, &reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return reply.id();
  }
  std::filesystem::path FileOf(const std::string& id, const std::string& array) {
    return folder_ / "checkpoints" / id / "table-1" / ("rank-0." + array + ".npy");
  }

  HeldFiles files_;
  DurabilityOptions durability_;  // of OpenWithData
  const test::TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
};

TEST_F(CheckpointCallsTest, RefusesAllWithoutADataFolder) {
  OpenWithAds();
  const std::string words = "the server keeps nothing: it was started without a data folder (--data)";
  for (const grpc::Status& status :
       {Save(), Ask(admin_, &Admin::ListCheckpoints, {}), Describe("1"), Verify("1")})
    ExpectStatus(status, grpc::StatusCode::FAILED_PRECONDITION, words);
}

TEST_F(CheckpointCallsTest, SavesListsDescribesAndVerifies) {
  OpenWithData();
  EXPECT_EQ(Listed().checkpoints_size(), 0);
  v1::SaveCheckpointReply base;
  ASSERT_TRUE(Save(false, &base).ok());
  EXPECT_FALSE(base.delta());
  EXPECT_GT(base.rows(), 0u);
  const std::string delta = Saved(true);

  const v1::ListCheckpointsReply listed = Listed();
  ASSERT_EQ(listed.checkpoints_size(), 2);
  const v1::CheckpointInfo& newest = listed.checkpoints(0);
  EXPECT_EQ(newest.id(), delta);
  EXPECT_EQ(newest.parent(), base.id());
  EXPECT_EQ(newest.rows(), 0u);
  EXPECT_TRUE(newest.usable()) << newest.why_not();
  const v1::CheckpointInfo& first = listed.checkpoints(1);
  EXPECT_EQ(first.id(), base.id());
  EXPECT_EQ(first.rows(), base.rows());
  EXPECT_EQ(first.bytes(), base.bytes());
  EXPECT_EQ(first.round(), base.round());
  EXPECT_EQ(first.ranks(), 1u);
  ASSERT_EQ(first.tables_size(), 1);
  EXPECT_EQ(first.tables(0).name(), "ads");
  EXPECT_EQ(first.tables(0).rows(), base.rows());

  v1::DescribeCheckpointReply described;
  ASSERT_TRUE(Describe(delta, &described).ok());
  ASSERT_EQ(described.chain_size(), 2);
  EXPECT_EQ(described.chain(0), base.id());
  EXPECT_EQ(described.folder(), (folder_ / "checkpoints" / delta).string());
  std::ifstream file(described.folder() + "/manifest.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(described.manifest(), text);
  EXPECT_TRUE(Verify(delta).ok());
}

TEST_F(CheckpointCallsTest, SaysWhichFileIsDamaged) {
  OpenWithData();
  const std::string base = Saved();
  const std::string delta = Saved(true);
  const std::filesystem::path rows = FileOf(base, "rows");
  {
    std::fstream file(rows, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(130);
    file.put('\x55');
  }
  ExpectStatus(Verify(delta), grpc::StatusCode::DATA_LOSS, rows.string());
  std::filesystem::resize_file(rows, 100);
  v1::ListCheckpointsReply listed = Listed();
  for (const auto& checkpoint : listed.checkpoints()) {
    EXPECT_FALSE(checkpoint.usable());
    EXPECT_NE(checkpoint.why_not().find(rows.string() + " has 100 bytes"), std::string::npos);
  }
  ExpectStatus(Verify(delta), grpc::StatusCode::DATA_LOSS, rows.string() + " has 100 bytes");
  std::ofstream(folder_ / "checkpoints" / base / "manifest.json") << "{}";
  listed = Listed();
  ASSERT_EQ(listed.checkpoints_size(), 2);
  EXPECT_EQ(listed.checkpoints(1).id(), base);  // broken ones come last
  ExpectStatus(Describe(base), grpc::StatusCode::DATA_LOSS, "is damaged");
}

// DATA_LOSS would be of steps, and after UNAVAILABLE clients try again.
TEST_F(CheckpointCallsTest, SaysWhyACheckpointIsNotLoaded) {
  OpenWithData();
  const std::string id = Saved();
  // Each load saves what it has loaded, and older checkpoints than those are removed meanwhile.
  ASSERT_TRUE(Checkpoints(SystemFiles(), (folder_ / "checkpoints").string()).Pin(id).ok());
  const std::string manifest = (folder_ / "checkpoints" / id / "manifest.json").string();
  ASSERT_TRUE(Load(id).ok());
  for (const std::string& file : {manifest, FileOf(id, "rows").string()}) {
    files_.Forbid(file);
    ExpectStatus(Load(id), grpc::StatusCode::INTERNAL, file);
    ExpectStatus(Verify(id), grpc::StatusCode::INTERNAL, file);
    files_.Forbid("");
    std::filesystem::rename(file, file + ".away");
    ExpectStatus(Load(id), grpc::StatusCode::FAILED_PRECONDITION, file + " is missing");
    std::filesystem::rename(file + ".away", file);
  }
  files_.Forbid(manifest);
  ExpectStatus(Describe(id), grpc::StatusCode::INTERNAL, manifest);
  files_.Forbid("");
  EXPECT_TRUE(Load(id).ok());
  std::ofstream(manifest) << "{}";
  ExpectStatus(Load(id), grpc::StatusCode::FAILED_PRECONDITION, manifest + " is damaged");
}

TEST_F(CheckpointCallsTest, RefusesNamesOfNoCheckpoint) {
  OpenWithData();
  std::filesystem::create_directory(folder_ / "checkpoints" / "\xff odd");
  for (const std::string id : {"", "../checkpoints", "-x", "no-such"}) {
    for (const grpc::Status& status : {Describe(id), Verify(id)})
      ExpectStatus(status, grpc::StatusCode::NOT_FOUND, "there is no checkpoint \"" + id + "\"");
  }
  const v1::ListCheckpointsReply listed = Listed();
  ASSERT_EQ(listed.checkpoints_size(), 1);
  EXPECT_EQ(listed.checkpoints(0).id(), "\"\\xff odd\"");
  EXPECT_FALSE(listed.checkpoints(0).usable());
  v1::SaveCheckpointRequest request;
  request.set_value_type(static_cast<v1::DataType>(7));
  ExpectStatus(Ask(admin_, &Admin::SaveCheckpoint, request), grpc::StatusCode::INVALID_ARGUMENT,
               "value_type is 7");
}

TEST_F(CheckpointCallsTest, WritesOnAfterItsCallerHasGone) {
  OpenWithData();
  files_.Hold();
  std::future<grpc::Status> first = std::async([&] {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + milliseconds(200));
    v1::SaveCheckpointReply saved;
    return admin_->SaveCheckpoint(&context, {}, &saved);
  });
  files_.AwaitWaiting(1);
  EXPECT_EQ(first.get().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  files_.Release();
  v1::ListCheckpointsReply listed;
  while (Ask(admin_, &Admin::ListCheckpoints, {}, &listed).ok() && listed.checkpoints_size() == 0)
    std::this_thread::yield();
  ASSERT_EQ(listed.checkpoints_size(), 1);
  EXPECT_TRUE(listed.checkpoints(0).usable());
}

TEST_F(CheckpointCallsTest, LetsOthersWaitForTheOneThatIsWritten) {
  OpenWithData();
  files_.Hold();
  std::future<grpc::Status> writes = std::async([&] { return Save(); });
  files_.AwaitWaiting(1);
  constexpr int kWaiting = 16;
  std::atomic<int> refused = 0;
  std::atomic<int> ended = 0;
  std::vector<std::thread> callers;
  for (int i = 0; i < kWaiting + 3; ++i) {
    callers.emplace_back([&] {
      const grpc::Status status = Save();
      ++ended;
      if (status.ok()) return;
      ++refused;
      ExpectStatus(status, grpc::StatusCode::RESOURCE_EXHAUSTED,
                   "is being written, and 16 requests wait for that already");
    });
  }
  while (ended < 3) std::this_thread::yield();
  EXPECT_EQ(refused, 3);
  files_.Release();
  for (std::thread& caller : callers) caller.join();
  EXPECT_TRUE(writes.get().ok());
  EXPECT_EQ(refused, 3);
}

TEST_F(CheckpointCallsTest, GivesUpRatherThanLetPushesWaitForASlowDisk) {
  durability_.max_copy_on_write_bytes = 0;
  durability_.checkpoint_buffer_bytes = 1;  // a row
  durability_.longest_stall = milliseconds(20);
  OpenWithData();
  constexpr std::uint32_t kSamples = 20;
  std::vector<std::uint64_t> keys(2 * kSamples);
  std::vector<std::uint32_t> offsets(keys.size() + 1);
  std::iota(keys.begin(), keys.end(), 100U);
  std::iota(offsets.begin(), offsets.end(), 0U);
  v1::PushRequest push = WholePush(1);
  push.set_samples(kSamples);
  push.set_keys(BytesOf(keys));
  push.set_offsets(BytesOf(offsets));
  push.set_gradients(BytesOf(std::vector<float>(kSamples * 6, 1.0F)));
  const auto pushed = [&](std::uint64_t number) {
    push.mutable_step()->set_number(number);
    return Ask(embedding_, &Embedding::Push, push);
  };
  ASSERT_TRUE(pushed(1).ok());
  files_.Hold();
  std::future<grpc::Status> first = std::async([&] { return Save(); });
  files_.AwaitWaiting(1);
  const grpc::Status status = pushed(2);
  EXPECT_TRUE(status.ok()) << status.error_message();
  files_.Release();
  ExpectStatus(first.get(), grpc::StatusCode::RESOURCE_EXHAUSTED, "raise durability.max_copy_on_write_mib");
  EXPECT_NE(Saved(), "");
}

TEST_F(CheckpointCallsTest, LoadsWhatIsThere) {
  OpenWithData();
  const std::string id = Saved();
  v1::LoadCheckpointReply loaded;
  ASSERT_TRUE(Load(id, &loaded).ok());
  EXPECT_NE(loaded.id(), id);
  EXPECT_EQ(loaded.rows(), 3U);
  EXPECT_GT(loaded.bytes(), 0U);
  EXPECT_TRUE(Verify(loaded.id()).ok());
  ExpectStatus(Load("absent"), grpc::StatusCode::NOT_FOUND, "there is no checkpoint");
  std::filesystem::resize_file(FileOf(id, "rows"), 100);
  ExpectStatus(Load(id), grpc::StatusCode::FAILED_PRECONDITION, "rank-0.rows.npy");
}

TEST_F(CheckpointCallsTest, LoadsSomeTablesOrSaysWhatIsWrong) {
  OpenWithData();
  const std::string id = Saved();
  v1::LoadCheckpointRequest request;
  v1::LoadCheckpointReply reply;
  const auto load = [&] { return Ask(admin_, &Admin::LoadCheckpoint, request, &reply); };
  request.mutable_some()->set_id(id);
  ExpectStatus(load(), grpc::StatusCode::INVALID_ARGUMENT, "some.tables: names no table");
  request.mutable_some()->add_tables("none");
  ExpectStatus(load(), grpc::StatusCode::NOT_FOUND, "checkpoint " + id + " has no table \"none\"");
  v1::DescribeCheckpointReply described;
  ASSERT_TRUE(Describe(id, &described).ok());
  request.mutable_some()->set_tables(0, described.checkpoint().tables(0).name());
  EXPECT_TRUE(load().ok());
  EXPECT_EQ(reply.rows(), 3U);
  request.mutable_some()->add_tables(request.some().tables(0));
  ExpectStatus(load(), grpc::StatusCode::INVALID_ARGUMENT, "comes twice");
  request.set_id(id);
  ExpectStatus(load(), grpc::StatusCode::INVALID_ARGUMENT, "id: must be empty");
}

TEST_F(CheckpointCallsTest, SaysWhatRowsCannotBeLoadedAs) {
  OpenWithData();
  v1::LoadCheckpointRequest request;
  request.set_id(Saved());
  v1::LoadCheckpointReply reply;
  const auto refusal = [&](v1::DataType type, v1::Rounding rounding, const std::string& why) {
    request.set_row_dtype(type);
    request.set_rounding(rounding);
    ExpectStatus(Ask(admin_, &Admin::LoadCheckpoint, request, &reply), grpc::StatusCode::INVALID_ARGUMENT,
                 why);
  };
  refusal(v1::DATA_TYPE_UNSPECIFIED, v1::ROUNDING_NEAREST, "rounding: needs a row_dtype");
  refusal(v1::DATA_TYPE_FLOAT32, v1::ROUNDING_STOCHASTIC, "rounding: needs a row_dtype of 16 bits");
  refusal(static_cast<v1::DataType>(99), v1::ROUNDING_UNSPECIFIED, "row_dtype is 99, which is no DataType");
  refusal(v1::DATA_TYPE_FLOAT16, static_cast<v1::Rounding>(99), "rounding is 99, which is no Rounding");
}

TEST_F(CheckpointCallsTest, SaysThatTheDiskIsFull) {
  OpenWithData();
  files_.FillUp();
  ExpectStatus(Save(), grpc::StatusCode::RESOURCE_EXHAUSTED, "could not be written: rank 0: create ");
  EXPECT_EQ(Listed().checkpoints_size(), 0);
}

TEST_F(CheckpointCallsTest, VerifiesOneAtATimeAndStopsIfNoCallerWaits) {
  OpenWithData();
  const std::string id = Saved();
  StopEngine();
  files_.Hold();
  grpc::ClientContext context;
  std::future<grpc::Status> first = std::async([&] { return Verify(id, context); });
  files_.AwaitWaiting(1);
  ExpectStatus(Verify(id), grpc::StatusCode::RESOURCE_EXHAUSTED,
               "checkpoint " + id + " is being verified, and a rank verifies or compacts one at a time");
  context.TryCancel();
  EXPECT_EQ(first.get().error_code(), grpc::StatusCode::CANCELLED);
  files_.Release();
  grpc::Status last;
  do {
    last = Verify(id);
  } while (last.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(last.ok()) << last.error_message();
}

TEST_F(CheckpointCallsTest, AnswersVerificationsWhenTheServerStops) {
  OpenWithData();
  const std::string id = Saved();
  StopEngine();
  files_.Hold();
  std::future<grpc::Status> verification = std::async([&] { return Verify(id); });
  files_.AwaitWaiting(1);
  std::future<grpc::Status> list = std::async([&] { return Ask(admin_, &Admin::ListCheckpoints, {}); });
  files_.AwaitWaiting(2);
  std::thread shutdown([&] { server_->Shutdown(milliseconds(60'000)); });
  grpc::Status late;
  do {
    late = Verify(id);
  } while (late.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  ExpectStatus(late, grpc::StatusCode::UNAVAILABLE, "the server is stopping");
  files_.Release();
  shutdown.join();
  ExpectStatus(verification.get(), grpc::StatusCode::UNAVAILABLE, "the server is stopping");
  EXPECT_TRUE(list.get().ok());  // what had begun ends
  server_.reset();
}

class CheckpointDeskTest : public testing::Test {
 protected:
  CheckpointDeskTest() {
    std::filesystem::create_directory(folder_ + "/one");
    files_.Hold();
  }

  // Verifies checkpoint "one", and returns what is to be heard of it.
  static std::future<Status> Verify(CheckpointService& desk, const std::function<bool()>& gone) {
    auto verified = std::make_shared<std::promise<Status>>();
    desk.Verify("one", gone, [verified](const auto& result) { verified->set_value(result.status()); });
    return verified->get_future();
  }
  static std::vector<std::future<Status>> ListOften(CheckpointService& desk, std::size_t times) {
    std::vector<std::future<Status>> answers;
    for (std::size_t i = 0; i < times; ++i) {
      auto listed = std::make_shared<std::promise<Status>>();
      desk.List([listed](const auto& result) { listed->set_value(result.status()); });
      answers.push_back(listed->get_future());
    }
    return answers;
  }

  HeldFiles files_;
  const test::TemporaryFolder temporary_;
  const std::string& folder_ = temporary_.path();
};

TEST_F(CheckpointDeskTest, BoundsWhatWaits) {
  CheckpointService desk(Checkpoints(files_, folder_));
  std::vector<std::future<Status>> answers = ListOften(desk, CheckpointService::kMostWaiting + 1);
  test::ExpectStatus(answers.back().get(), StatusCode::kResourceExhausted,
                     "64 questions about checkpoints wait, the most that may");
  answers.pop_back();
  files_.Release();
  for (std::future<Status>& answer : answers) EXPECT_TRUE(answer.get().ok());
  EXPECT_TRUE(ListOften(desk, 1).front().get().ok());
}

TEST_F(CheckpointDeskTest, AnswersAllThatWaitsWhenItStops) {
  CheckpointService desk(Checkpoints(files_, folder_));
  std::vector<std::future<Status>> answers = ListOften(desk, 5);
  files_.AwaitWaiting(1);  // the first one is under way
  std::thread stop([&] { desk.Stop(); });
  StatusCode code = StatusCode::kOk;
  do {  // until it stops
    std::future<Status> answer = Verify(desk, [] { return false; });
    if (answer.wait_for(milliseconds(0)) != std::future_status::ready) files_.Release();
    code = answer.get().code();
  } while (code != StatusCode::kUnavailable);
  files_.Release();
  stop.join();
  for (std::future<Status>& answer : answers) {
    const Status status = answer.get();
    EXPECT_TRUE(status.ok() || status.message() == "the server is stopping") << status.message();
  }
}

// A newer checkpoint may let a pinned one go as soon as its pin is gone.
TEST_F(CheckpointDeskTest, ReleasesACheckpointThatIsRemovedAtOnce) {
  const std::string pinned = folder_ + "/one";
  std::ofstream(pinned + "/" + std::string(kPinName)).close();
  WatchedFiles files(SystemFiles());
  bool removed = false;
  files.before_change = [&](const std::string& operation, const std::string& path) {
    if (operation == "sync folder" && path == pinned) removed = std::filesystem::remove_all(pinned) > 0;
    return Status();
  };
  CheckpointService desk(Checkpoints(files, folder_));
  std::promise<Result<ListedCheckpoint>> released;
  desk.Release("one", [&](const auto& result) { released.set_value(result); });
  EXPECT_EQ(test::Must(released.get_future().get()).id, "one");
  EXPECT_TRUE(removed);
}

TEST_F(CheckpointDeskTest, CompactsOneAtATimeAndStopsIfNoCallerWaits) {
  CheckpointService desk(Checkpoints(files_, folder_));
  std::atomic<bool> gone = false;
  std::promise<Status> compacted;
  desk.Compact(
      "one", "1", [&] { return gone.load(); },
      [&](const auto& result) { compacted.set_value(result.status()); });
  files_.AwaitWaiting(1);
  EXPECT_EQ(Verify(desk, [] { return false; }).get().message(),
            "checkpoint one is being compacted, and a rank verifies or compacts one at a time");
  gone = true;
  files_.Release();
  EXPECT_EQ(compacted.get_future().get().code(), StatusCode::kCancelled);
}

TEST_F(CheckpointDeskTest, StopsReadingOnceNoCallerWaits) {
  CheckpointService desk(Checkpoints(files_, folder_));
  std::atomic<bool> gone = false;
  std::future<Status> verified = Verify(desk, [&] { return gone.load(); });
  files_.AwaitWaiting(1);
  gone = true;
  files_.Release();
  EXPECT_EQ(verified.get().code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace slotwise
