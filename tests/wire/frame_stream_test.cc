// Tests the two ends of a connection over a socket pair.
#include "wire/frame_stream.h"

#include <gmock/gmock.h>
#include <sys/socket.h>
#include <unistd.h>

#include <asio/executor_work_guard.hpp>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

namespace slotwise {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// Receives frames, and keeps them.
class Side final : public FrameStream {
 public:
  struct Frame {
    std::string head;
    std::vector<std::byte> body;
    friend bool operator==(const Frame&, const Frame&) = default;
  };

  Side(Socket socket, const Limits& limits) : FrameStream(std::move(socket), limits) {}
  using FrameStream::Start;

  // Waits for so many frames in all, at most a minute.
  std::vector<Frame> Await(std::size_t frames) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::minutes(1), [&] { return frames_.size() >= frames; }));
    return frames_;
  }
  std::string AwaitEnd() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::minutes(1), [&] { return !why_.empty(); }));
    return why_;
  }
  bool ended_by_peer() {
    const std::lock_guard lock(mutex_);
    return by_peer_;
  }

  // Bodies go into so many pieces; 0: nowhere.
  std::size_t pieces = 1;
  bool pauses = false;
  bool has_memory_for_heads = true;
  std::string refusal;  // of the next head

 private:
  std::optional<Room> OnHead(std::span<const std::byte> head, std::uint64_t body_bytes,
                             std::string& why) override {
    if (!refusal.empty()) {
      why = refusal;
      return std::nullopt;
    }
    now_ = {std::string(reinterpret_cast<const char*>(head.data()), head.size()), {}};
    if (pieces == 0) return Room{.skip = true};
    now_.body.resize(body_bytes);
    Room room;
    for (std::size_t i = 0; i < pieces; ++i) {
      const std::size_t first = body_bytes * i / pieces;
      room.buffers.emplace_back(now_.body.data() + first, body_bytes * (i + 1) / pieces - first);
    }
    return room;
  }
  bool OnLargeHead(std::uint64_t) override { return has_memory_for_heads; }
  bool OnBody() override {
    const std::lock_guard lock(mutex_);
    frames_.push_back(std::move(now_));
    changed_.notify_all();
    return !pauses;
  }
  void OnEnd(const std::string& why, bool by_peer) override {
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(why_.empty()) << "ended twice";
    why_ = why;
    by_peer_ = by_peer;
    changed_.notify_all();
  }

  Frame now_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Frame> frames_;
  std::string why_;
  bool by_peer_ = false;
};

class FrameStreamTest : public testing::Test {
 protected:
  static constexpr std::uint64_t kMost = 64 << 20;

  // The right end is a bare socket if `bare`.
  void Connect(const FrameStream::Limits& left, const FrameStream::Limits& right, bool bare = false) {
    std::array<int, 2> sockets{};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets.data()), 0);
    left_ = MakeSide(sockets[0], left);
    if (bare) {
      bare_ = sockets[1];
    } else {
      right_ = MakeSide(sockets[1], right);
    }
  }
  void Connect() { Connect({.frame_bytes = kMost}, {.frame_bytes = kMost}); }

  ~FrameStreamTest() override {
    for (const auto& end : {left_, right_}) {
      if (end == nullptr) continue;
      end->End("the test is over");
      end->AwaitEnd();
    }
    if (bare_ >= 0) close(bare_);
    work_.reset();
    thread_.join();
  }

  static std::vector<std::byte> Numbered(std::size_t size) {
    std::vector<std::byte> bytes(size);
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 131 >> 3);
    return bytes;
  }

  // Sends a frame whose body is `body`, cut in two.
  static void Send(Side& from, std::string head, const std::vector<std::byte>& body,
                   std::function<void()> done = nullptr) {
    OutgoingFrame frame{.head = std::move(head), .done = std::move(done)};
    const std::span<const std::byte> all(body);
    frame.body = {all.first(body.size() / 3), all.subspan(body.size() / 3)};
    from.Send(std::move(frame));
  }

  // Returns when another connection has waited in vain for so long.
  void PassTime(milliseconds time) {
    std::array<int, 2> sockets{};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets.data()), 0);
    const auto waits = MakeSide(sockets[0], {.frame_bytes = kMost, .read_timeout = time});
    waits->Start();
    ASSERT_EQ(write(sockets[1], "x", 1), 1);
    waits->AwaitEnd();
    close(sockets[1]);
  }

  std::shared_ptr<Side> left_;
  std::shared_ptr<Side> right_;
  int bare_ = -1;

 private:
  std::shared_ptr<Side> MakeSide(int descriptor, const FrameStream::Limits& limits) {
    FrameStream::Socket socket(context_);
    socket.assign({AF_UNIX, 0}, descriptor);
    return std::make_shared<Side>(std::move(socket), limits);
  }

  asio::io_context context_{1};
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work_{context_.get_executor()};
  std::thread thread_{[this] { context_.run(); }};
};

TEST_F(FrameStreamTest, BringsFramesOfAllSizesInOrder) {
  Connect();
  right_->pieces = 3;
  right_->Start();
  std::vector<Side::Frame> sent;
  for (const std::size_t size : {0U, 1U, 63U, 64U, 16'350U, 16'384U, 16'385U, 100'000U, 8'000'000U, 5U}) {
    for (const std::size_t head : {0U, 1U, 16'368U, 16'384U, 40'000U}) {
      sent.push_back({std::string(head, static_cast<char>('a' + size % 26)), Numbered(size)});
    }
  }
  for (const Side::Frame& frame : sent) Send(*left_, frame.head, frame.body);
  EXPECT_EQ(right_->Await(sent.size()), sent);
}

TEST_F(FrameStreamTest, BringsManySmallFramesThatWait) {
  Connect();
  const auto body = Numbered(10);
  constexpr std::size_t kFrames = 20'000;
  for (std::size_t i = 0; i < kFrames; ++i) Send(*left_, std::to_string(i), body);
  right_->Start();
  const auto frames = right_->Await(kFrames);
  for (std::size_t i = 0; i < kFrames; ++i) ASSERT_EQ(frames[i].head, std::to_string(i));
}

TEST_F(FrameStreamTest, SkipsABodyThatGoesNowhere) {
  Connect();
  right_->pieces = 0;
  right_->Start();
  const auto body = Numbered(1'000'000);
  Send(*left_, "one", body);
  Send(*left_, "two", {});
  EXPECT_EQ(right_->Await(2)[1].head, "two");
}

TEST_F(FrameStreamTest, SaysWhenTheSendersMemoryIsFree) {
  Connect();
  std::mutex mutex;
  std::condition_variable changed;
  int free = 0;
  const auto done = [&] {
    const std::lock_guard lock(mutex);
    ++free;
    changed.notify_all();
  };
  auto body = Numbered(8'000'000);  // more than the sockets hold
  Send(*left_, "large", body, done);
  Send(*left_, "small", {}, done);
  {
    const std::lock_guard lock(mutex);
    EXPECT_EQ(free, 0);
  }
  right_->Start();
  right_->Await(2);
  std::unique_lock lock(mutex);
  EXPECT_TRUE(changed.wait_for(lock, std::chrono::minutes(1), [&] { return free == 2; }));
}

TEST_F(FrameStreamTest, LetsGoOfWhatItDidNotSendAsItEnds) {
  Connect();
  int free = 0;
  const auto body = Numbered(8'000'000);
  Send(*left_, "large", body, [&] { ++free; });
  Send(*left_, "behind it", body, [&] { ++free; });
  left_->End("enough");
  EXPECT_EQ(left_->AwaitEnd(), "enough");
  EXPECT_EQ(free, 2) << "before OnEnd";
  EXPECT_FALSE(left_->ended_by_peer());
  Send(*left_, "late", body, [&] { ++free; });
  EXPECT_EQ(free, 3);
}

TEST_F(FrameStreamTest, ReadsNothingWhileItIsPaused) {
  Connect();
  right_->pauses = true;
  right_->Start();
  for (int i = 0; i < 3; ++i) Send(*left_, std::to_string(i), {});
  EXPECT_EQ(right_->Await(1).size(), 1U);
  right_->Resume();
  EXPECT_EQ(right_->Await(2).size(), 2U);
  right_->Resume();
  EXPECT_EQ(right_->Await(3).size(), 3U);
}

TEST_F(FrameStreamTest, EndsWithItsPeer) {
  Connect();
  left_->Start();
  right_->Start();
  right_->End("over");
  left_->AwaitEnd();
  EXPECT_TRUE(left_->ended_by_peer());
}

TEST_F(FrameStreamTest, EndsWhereAHeadIsRefused) {
  Connect();
  right_->refusal = "not that";
  right_->Start();
  Send(*left_, "head", Numbered(100));
  EXPECT_EQ(right_->AwaitEnd(), "not that");
}

TEST_F(FrameStreamTest, RefusesFramesBeyondItsLimit) {
  for (const auto& [head, body] : {std::pair{101U, 0U}, {1U, 100U}, {0U, 101U}}) {
    Connect({.frame_bytes = kMost}, {.frame_bytes = 100});
    right_->Start();
    Send(*left_, std::string(head, 'x'), Numbered(body));
    EXPECT_THAT(right_->AwaitEnd(), HasSubstr("at most 100 are taken"));
    left_->End("next");
    left_->AwaitEnd();
  }
  Connect({.frame_bytes = kMost}, {.frame_bytes = 100});
  right_->Start();
  Send(*left_, "x", Numbered(99));
  right_->Await(1);
}

TEST_F(FrameStreamTest, RefusesLengthsThatAreNoFrames) {
  const std::array<std::array<unsigned char, 16>, 3> prefixes{
      {{1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},                  // reserved
       {1, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255},  // no body is so long
       {255, 255, 255, 255, 0, 0, 0, 0, 255, 255, 255, 3, 0, 0, 0, 0}}};  // together
  for (const auto& prefix : prefixes) {
    Connect({.frame_bytes = kMost}, {}, true);
    left_->Start();
    ASSERT_EQ(write(bare_, prefix.data(), prefix.size()), 16);
    EXPECT_THAT(left_->AwaitEnd(), HasSubstr("or it is no frame"));
    close(std::exchange(bare_, -1));
  }
}

TEST_F(FrameStreamTest, AsksBeforeItTakesALargeHead) {
  Connect();
  right_->has_memory_for_heads = false;
  right_->Start();
  Send(*left_, std::string(16'384, 'x'), {});
  EXPECT_EQ(right_->Await(1).size(), 1U);
  Send(*left_, std::string(16'385, 'x'), {});
  EXPECT_THAT(right_->AwaitEnd(), HasSubstr("no memory for a frame's head of 16385 bytes"));
}

TEST_F(FrameStreamTest, EndsIfItsPeerTakesNothing) {
  Connect({.frame_bytes = kMost, .write_timeout = milliseconds(50)}, {}, true);
  left_->Start();
  const auto body = Numbered(8'000'000);
  Send(*left_, "large", body);
  EXPECT_EQ(left_->AwaitEnd(), "what was sent was not taken within 50 ms");
}

TEST_F(FrameStreamTest, EndsIfTheRestOfAFrameDoesNotCome) {
  for (const std::size_t sent : {1U, 15U, 16U, 17U, 20'000U}) {
    Connect({.frame_bytes = kMost, .read_timeout = milliseconds(50)}, {}, true);
    left_->Start();
    std::vector<unsigned char> bytes(sent);
    bytes[0] = 1;  // of the head
    if (sent > 9) bytes[9] = 255;
    ASSERT_EQ(write(bare_, bytes.data(), bytes.size()), static_cast<ssize_t>(sent));
    EXPECT_EQ(left_->AwaitEnd(), "the rest of a frame did not come within 50 ms");
    close(std::exchange(bare_, -1));
  }
}

TEST_F(FrameStreamTest, WaitsForItsPeersNextFrameForAnyTime) {
  Connect({.frame_bytes = kMost, .write_timeout = milliseconds(20), .read_timeout = milliseconds(20)},
          {.frame_bytes = kMost});
  left_->Start();
  right_->Start();
  const auto body = Numbered(100'000);
  for (std::size_t i = 1; i <= 4; ++i) {
    Send(*right_, "there", body);
    Send(*left_, "and back", body);
    EXPECT_EQ(left_->Await(i).size(), i);
    EXPECT_EQ(right_->Await(i).size(), i);
    PassTime(milliseconds(40));  // longer than both limits: nothing is on its way, so nothing is late
  }
}

TEST(AddArray, PadsArraysTo64Bytes) {
  const std::vector<std::byte> bytes(130, std::byte{7});
  for (const auto& [size, padded] : {std::pair{0U, 0U}, {1U, 64U}, {64U, 64U}, {65U, 128U}, {130U, 192U}}) {
    std::vector<std::span<const std::byte>> body;
    AddArray(std::span(bytes).first(size), body);
    std::size_t sum = 0;
    for (const auto& piece : body) sum += piece.size();
    EXPECT_EQ(sum, padded);
    EXPECT_EQ(PaddedBytes(size), padded);
  }
}

}  // namespace
}  // namespace slotwise
