// What a client may send in earnest passes the meter, however much of it; floods of frames that carry no
// message, and headers without end, do not. How bytes are cut into reads makes no difference.
#include "server/rpc/frame_meter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>

namespace slotwise {
namespace {

using Bound = FrameMeter::Bound;
using std::chrono::milliseconds;
using std::chrono::seconds;

enum Type : std::uint8_t {
  kData = 0,
  kHeaders = 1,
  kPriority = 2,
  kReset = 3,
  kSettings = 4,
  kPing = 6,
  kWindowUpdate = 8,
  kContinuation = 9,
};

std::string Frame(Type type, std::uint32_t stream, std::size_t size, std::uint8_t flags = 0) {
  std::string frame(9 + size, 'x');
  for (const int i : {0, 1, 2}) frame[i] = static_cast<char>(size >> (16 - 8 * i));
  frame[3] = static_cast<char>(type);
  frame[4] = static_cast<char>(flags);
  for (const int i : {0, 1, 2, 3}) frame[5 + i] = static_cast<char>(stream >> (24 - 8 * i));
  return frame;
}

std::string Times(int count, const std::string& frames) {
  std::string all;
  for (int i = 0; i < count; ++i) all += frames;
  return all;
}

class FrameMeterTest : public testing::Test {
 protected:
  FrameMeter NewMeter() {
    FrameMeter meter(
        shared_, [this] { return bytes_taken_; }, now_);
    EXPECT_EQ(Read(meter, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), std::nullopt);
    return meter;
  }

  std::optional<Bound> Read(FrameMeter& meter, const std::string& bytes) {
    return meter.Read(std::as_bytes(std::span(bytes)), now_);
  }

  // Returns how many times the meter lets the frames pass, up to `most`, and notes the bound.
  int Passes(FrameMeter& meter, const std::string& frames, int most = 1'000'000) {
    for (int i = 0; i < most; ++i) {
      bound_ = Read(meter, frames);
      if (bound_) return i;
    }
    return most;
  }

  // As Passes, of a connection's newest call each time.
  int PassesOfCalls(FrameMeter& meter, const std::string& after_headers, int most) {
    for (int i = 0; i < most; ++i) {
      next_call_ += 2;
      bound_ = Read(meter, Frame(kHeaders, next_call_, 40, 4) + after_headers);
      if (bound_) return i;
    }
    return most;
  }

  FrameMeter::Clock::time_point now_{};
  SharedFrames shared_{now_};
  std::uint64_t bytes_taken_ = 0;
  std::optional<Bound> bound_;
  std::uint32_t next_call_ = 1;
};

constexpr int kASecond = FrameMeter::kFramesASecond;
constexpr int kQuiet = FrameMeter::kQuietFramesASecond;
// What a connection may send before time has passed.
constexpr int kFirst = kASecond / 4 + kQuiet;

TEST_F(FrameMeterTest, EndsABlockOfHeadersThatHasTooManyBytes) {
  FrameMeter meter = NewMeter();
  const int half = FrameMeter::kMostHeaderBytes / 2;
  EXPECT_EQ(Read(meter, Frame(kHeaders, 1, half) + Frame(kContinuation, 1, half)), std::nullopt);
  EXPECT_EQ(Read(meter, Frame(kContinuation, 1, 1)), Bound::kHeaders);
}

TEST_F(FrameMeterTest, EndsAFrameOfHeadersBeforeItIsThere) {
  FrameMeter meter = NewMeter();
  EXPECT_EQ(Read(meter, Frame(kHeaders, 1, FrameMeter::kMostHeaderBytes + 1).substr(0, 9)), Bound::kHeaders);
}

TEST_F(FrameMeterTest, CountsEachBlockOfHeadersByItself) {
  FrameMeter meter = NewMeter();
  for (std::uint32_t call = 1; call < 1001; call += 2) {
    EXPECT_EQ(Read(meter, Frame(kHeaders, call, 16'000) + Frame(kContinuation, call, 16'000)), std::nullopt);
  }
}

TEST_F(FrameMeterTest, LetsAnyNumberOfTinyCallsPass) {
  FrameMeter meter = NewMeter();
  const std::string rest = Frame(kData, 1, 5, 1) + Frame(kWindowUpdate, 0, 4) + Frame(kWindowUpdate, 1, 4);
  EXPECT_EQ(PassesOfCalls(meter, rest, 200'000), 200'000);
}

TEST_F(FrameMeterTest, LetsAnyNumberOfLargeFramesPass) {
  FrameMeter meter = NewMeter();
  EXPECT_EQ(Passes(meter, Frame(kData, 1, 256) + Frame(kData, 1, 16'384), 20'000), 20'000);
}

TEST_F(FrameMeterTest, EndsFloodsOfFramesWithoutMessages) {
  for (const Type type : {kData, kPriority, kContinuation, static_cast<Type>(77)}) {
    FrameMeter meter = NewMeter();
    EXPECT_EQ(Passes(meter, Frame(type, 1, 0)), kFirst) << type;
    EXPECT_EQ(bound_, Bound::kFrames);
    EXPECT_EQ(Read(meter, ""), Bound::kFrames) << "for good";
    now_ += seconds(10);  // the shared allowance is there again
    EXPECT_EQ(Read(meter, Frame(type, 1, 0)), Bound::kFrames) << "for good";
  }
}

TEST_F(FrameMeterTest, ChargesFramesByWhatTheyCost) {
  FrameMeter one_byte = NewMeter();
  EXPECT_EQ(Passes(one_byte, Frame(kData, 1, 1)), kFirst * 256 / 255);
  now_ += seconds(10);
  FrameMeter padded = NewMeter();
  EXPECT_EQ(Passes(padded, Frame(kData, 1, 256, 8)), kFirst);
  now_ += seconds(10);
  FrameMeter ping = NewMeter();
  EXPECT_EQ(Passes(ping, Frame(kPing, 0, 8)), kFirst * 8 / 129);
  now_ += seconds(10);
  FrameMeter answer = NewMeter();
  EXPECT_EQ(Passes(answer, Frame(kPing, 0, 8, 1)), kFirst * 8 / 9);
  now_ += seconds(10);
  FrameMeter settings = NewMeter();
  EXPECT_EQ(Passes(settings, Frame(kSettings, 0, 64 * 240)), kFirst / 256);
}

TEST_F(FrameMeterTest, LetsOnlyNewCallsPayForFrames) {
  FrameMeter meter = NewMeter();
  EXPECT_EQ(Read(meter, Frame(kHeaders, 9, 40, 4)), std::nullopt);
  EXPECT_LE(Passes(meter, Frame(kHeaders, 9, 40, 4)), kFirst + 4);
  EXPECT_EQ(bound_, Bound::kFrames);
}

TEST_F(FrameMeterTest, EndsAFloodInOneRead) {
  FrameMeter meter = NewMeter();
  EXPECT_EQ(Read(meter, Times(kFirst + 1, Frame(kPriority, 0, 0))), Bound::kFrames);
}

TEST_F(FrameMeterTest, LetsAConnectionsCallsBeGivenUpTogetherButNotWithoutEnd) {
  FrameMeter meter = NewMeter();
  const int resets = PassesOfCalls(meter, Frame(kReset, 1, 4), 1'000'000);
  EXPECT_EQ(bound_, Bound::kFrames);
  EXPECT_GE(resets, 256) << "the calls of a new connection";
  EXPECT_LT(resets, 300);
}

TEST_F(FrameMeterTest, LetsFramesPassAtTheRateForEver) {
  FrameMeter meter = NewMeter();
  for (int i = 0; i < 1000; ++i) {
    now_ += milliseconds(100);
    ASSERT_EQ(Read(meter, Times(kASecond / 10, Frame(kPriority, 0, 0))), std::nullopt) << i;
  }
  EXPECT_LE(Passes(meter, Frame(kPriority, 0, 0)), 4 * kASecond + 16 * kQuiet) << "what was left is bounded";
}

TEST_F(FrameMeterTest, GivesAllConnectionsOneAllowance) {
  int passed = 0;
  int connections = 0;
  while (bound_ != Bound::kSharedFrames) {
    ASSERT_LT(++connections, 1000);
    FrameMeter meter = NewMeter();
    passed += Passes(meter, Frame(kPriority, 0, 0));
  }
  EXPECT_LE(passed, 2 * SharedFrames::kASecond + connections * kQuiet);
}

TEST_F(FrameMeterTest, KeepsAQuietConnectionWhateverOthersDo) {
  FrameMeter quiet = NewMeter();
  while (bound_ != Bound::kSharedFrames) {
    FrameMeter meter = NewMeter();
    Passes(meter, Frame(kPriority, 0, 0));
  }
  EXPECT_EQ(Read(quiet, Times(kQuiet, Frame(kPriority, 0, 0))), std::nullopt);
  for (int i = 0; i < 100; ++i) {
    now_ += seconds(10);
    shared_.Take(1e9, now_);
    EXPECT_EQ(Read(quiet, Frame(kPing, 0, 8)), std::nullopt) << "a ping of gRPC's keepalive";
  }
  const std::string tiny = Frame(kData, 1, 5, 1) + Frame(kWindowUpdate, 0, 4);
  EXPECT_EQ(PassesOfCalls(quiet, tiny, 10'000), 10'000);
  EXPECT_EQ(Passes(quiet, Frame(kPriority, 0, 0), 10'000), 16 * kQuiet) << "its own allowance is bounded";
  EXPECT_EQ(bound_, Bound::kSharedFrames);
}

TEST_F(FrameMeterTest, LetsRepliesPayForWindowUpdates) {
  FrameMeter meter = NewMeter();
  for (int i = 0; i < 200'000; ++i) {
    bytes_taken_ += 2 * 1024;
    ASSERT_EQ(Read(meter, Frame(kWindowUpdate, 0, 4)), std::nullopt) << i;
  }
  bytes_taken_ += std::uint64_t{1} << 40;
  const int burst = Passes(meter, Frame(kPriority, 0, 0));
  EXPECT_GE(burst, 4 * kASecond);
  EXPECT_LE(burst, 4 * kASecond + kASecond / 4 + 16 * kQuiet) << "old replies pay for one burst";
}

TEST_F(FrameMeterTest, FindsFramesHoweverBytesAreCut) {
  std::string calls;
  for (std::uint32_t call = 1; call < 401; call += 2) {
    calls += Frame(kHeaders, call, 100, 4) + Frame(kData, call, 300, 1);
  }
  const std::string flood = calls + Times(kFirst + 1000, Frame(kPriority, 0, 0));
  for (const std::size_t piece : {1, 2, 8, 9, 10, 1000}) {
    now_ += seconds(10);
    FrameMeter meter = NewMeter();
    std::size_t read = 0;
    while (read < flood.size() && !(bound_ = Read(meter, flood.substr(read, piece)))) read += piece;
    EXPECT_EQ(bound_, Bound::kFrames) << piece;
    // The calls pay for some of the flood.
    EXPECT_GE(read + piece, calls.size() + 9UL * kFirst) << piece;
  }
}

}  // namespace
}  // namespace slotwise
