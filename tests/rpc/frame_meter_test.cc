// The meter passes any amount of useful frames, but no floods of frames without a message and no endless
// headers. The cuts between reads do not matter.
#include "server/rpc/frame_meter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace slotwise {
namespace {

using Bound = FrameMeter::Bound;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint8_t kPriority = 2;
constexpr std::uint8_t kWindowUpdate = 8;
constexpr std::uint8_t kEndHeaders = 4;
constexpr std::uint8_t kEndStream = FrameHeader::kEndStream;
constexpr std::uint64_t kMostCalls = 256;

std::string Frame(std::uint8_t type, std::uint32_t stream, std::size_t size, std::uint8_t flags = 0) {
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
  std::unique_ptr<FrameMeter> NewMeter() {
    auto meter = std::make_unique<FrameMeter>(
        shared_, calls_, kMostCalls, [this] { return bytes_taken_; }, now_);
    EXPECT_EQ(Read(meter, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), std::nullopt);
    return meter;
  }

  std::optional<Bound> Read(const std::unique_ptr<FrameMeter>& meter, const std::string& bytes) {
    return meter->Read(std::as_bytes(std::span(bytes)), now_);
  }

  static void Answer(const std::unique_ptr<FrameMeter>& meter, const std::string& bytes) {
    meter->ReadSent(std::as_bytes(std::span(bytes)));
  }

  // Returns how many times the meter lets the frames pass, up to `most`, and notes the bound.
  int Passes(const std::unique_ptr<FrameMeter>& meter, const std::string& frames, int most = 1'000'000) {
    for (int i = 0; i < most; ++i) {
      bound_ = Read(meter, frames);
      if (bound_) return i;
    }
    return most;
  }

  // As Passes, of a connection's newest call each time, which the server ends if the client has not.
  int PassesOfCalls(const std::unique_ptr<FrameMeter>& meter, const std::string& after_headers, int most) {
    for (int i = 0; i < most; ++i) {
      next_call_ += 2;
      bound_ = Read(meter, Frame(kHeaders, next_call_, 40, kEndHeaders) + after_headers);
      if (bound_) return i;
      Answer(meter, Frame(kResetStream, next_call_, 4));
    }
    return most;
  }

  FrameMeter::Clock::time_point now_{};
  SharedFrames shared_{now_};
  SharedCalls calls_;
  std::uint64_t bytes_taken_ = 0;
  std::optional<Bound> bound_;
  std::uint32_t next_call_ = 1;
};

constexpr int kASecond = FrameMeter::kFramesASecond;
constexpr int kQuiet = FrameMeter::kQuietFramesASecond;
// What a connection may send before time has passed.
constexpr int kFirst = kASecond / 4 + kQuiet;

TEST_F(FrameMeterTest, EndsABlockOfHeadersThatHasTooManyBytes) {
  const auto meter = NewMeter();
  const int half = FrameMeter::kMostHeaderBytes / 2;
  EXPECT_EQ(Read(meter, Frame(kHeaders, 1, half) + Frame(kContinuation, 1, half)), std::nullopt);
  EXPECT_EQ(Read(meter, Frame(kContinuation, 1, 1)), Bound::kHeaders);
}

TEST_F(FrameMeterTest, EndsAFrameOfHeadersBeforeItIsThere) {
  const auto meter = NewMeter();
  EXPECT_EQ(Read(meter, Frame(kHeaders, 1, FrameMeter::kMostHeaderBytes + 1).substr(0, 9)), Bound::kHeaders);
}

TEST_F(FrameMeterTest, CountsEachBlockOfHeadersByItself) {
  const auto meter = NewMeter();
  for (std::uint32_t call = 1; call < 1001; call += 2) {
    EXPECT_EQ(Read(meter, Frame(kHeaders, call, 16'000) + Frame(kContinuation, call, 16'000)), std::nullopt);
    Answer(meter, Frame(kResetStream, call, 4));
  }
}

TEST_F(FrameMeterTest, LetsAnyNumberOfTinyCallsPass) {
  const auto meter = NewMeter();
  const std::string rest = Frame(kData, 1, 5, 1) + Frame(kWindowUpdate, 0, 4) + Frame(kWindowUpdate, 1, 4);
  EXPECT_EQ(PassesOfCalls(meter, rest, 200'000), 200'000);
}

TEST_F(FrameMeterTest, LetsAnyNumberOfLargeFramesPass) {
  const auto meter = NewMeter();
  EXPECT_EQ(Passes(meter, Frame(kData, 1, 256) + Frame(kData, 1, 16'384), 20'000), 20'000);
}

TEST_F(FrameMeterTest, EndsFloodsOfFramesWithoutMessages) {
  for (const std::uint8_t type : std::initializer_list<std::uint8_t>{kData, kPriority, kContinuation, 77}) {
    const auto meter = NewMeter();
    EXPECT_EQ(Passes(meter, Frame(type, 1, 0)), kFirst) << int{type};
    EXPECT_EQ(bound_, Bound::kFrames);
    EXPECT_EQ(Read(meter, ""), Bound::kFrames) << "for good";
    now_ += seconds(10);  // the shared allowance is there again
    EXPECT_EQ(Read(meter, Frame(type, 1, 0)), Bound::kFrames) << "for good";
  }
}

TEST_F(FrameMeterTest, ChargesFramesByWhatTheyCost) {
  const auto one_byte = NewMeter();
  EXPECT_EQ(Passes(one_byte, Frame(kData, 1, 1)), kFirst * 256 / 255);
  now_ += seconds(10);
  const auto padded = NewMeter();
  EXPECT_EQ(Passes(padded, Frame(kData, 1, 256, 8)), kFirst);
  now_ += seconds(10);
  const auto ping = NewMeter();
  EXPECT_EQ(Passes(ping, Frame(kPing, 0, 8)), kFirst * 8 / 129);
  now_ += seconds(10);
  const auto answer = NewMeter();
  EXPECT_EQ(Passes(answer, Frame(kPing, 0, 8, 1)), kFirst * 8 / 9);
  now_ += seconds(10);
  const auto settings = NewMeter();
  EXPECT_EQ(Passes(settings, Frame(kSettings, 0, 64 * 240)), kFirst / 256);
}

TEST_F(FrameMeterTest, LetsOnlyNewCallsPayForFrames) {
  const auto meter = NewMeter();
  EXPECT_EQ(Read(meter, Frame(kHeaders, 9, 40, 4)), std::nullopt);
  EXPECT_LE(Passes(meter, Frame(kHeaders, 9, 40, 4)), kFirst + 4);
  EXPECT_EQ(bound_, Bound::kFrames);
}

TEST_F(FrameMeterTest, EndsAFloodInOneRead) {
  const auto meter = NewMeter();
  EXPECT_EQ(Read(meter, Times(kFirst + 1, Frame(kPriority, 0, 0))), Bound::kFrames);
}

TEST_F(FrameMeterTest, LetsAConnectionsCallsBeGivenUpTogetherButNotWithoutEnd) {
  const auto meter = NewMeter();
  const int resets = PassesOfCalls(meter, Frame(kResetStream, 1, 4), 1'000'000);
  EXPECT_EQ(bound_, Bound::kFrames);
  EXPECT_GE(resets, 256) << "the calls of a new connection";
  EXPECT_LT(resets, 300);
}

TEST_F(FrameMeterTest, LetsFramesPassAtTheRateForEver) {
  const auto meter = NewMeter();
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
    const auto meter = NewMeter();
    passed += Passes(meter, Frame(kPriority, 0, 0));
  }
  EXPECT_LE(passed, 2 * SharedFrames::kASecond + connections * kQuiet);
}

TEST_F(FrameMeterTest, KeepsAQuietConnectionWhateverOthersDo) {
  const auto quiet = NewMeter();
  while (bound_ != Bound::kSharedFrames) {
    const auto meter = NewMeter();
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
  const auto meter = NewMeter();
  for (int i = 0; i < 200'000; ++i) {
    bytes_taken_ += 2 * 1024;
    ASSERT_EQ(Read(meter, Frame(kWindowUpdate, 0, 4)), std::nullopt) << i;
  }
  bytes_taken_ += std::uint64_t{1} << 40;
  const int burst = Passes(meter, Frame(kPriority, 0, 0));
  EXPECT_GE(burst, 4 * kASecond);
  EXPECT_LE(burst, 4 * kASecond + kASecond / 4 + 16 * kQuiet) << "old replies pay for one burst";
}

// Of these a client may have as many as it likes, one after the other; of those that one side has not ended,
// so many.
TEST_F(FrameMeterTest, CountsCallsUntilBothSidesHaveEndedThemOrOneHasReset) {
  const auto begin = [](std::uint32_t call) { return Frame(kHeaders, call, 40, kEndHeaders); };
  const auto data = [](std::uint32_t call) { return Frame(kData, call, 300, kEndStream); };
  const auto trailers = [](std::uint32_t call) {
    return Frame(kHeaders, call, 40, kEndHeaders) + Frame(kHeaders, call, 40, kEndHeaders | kEndStream);
  };
  const auto reset = [](std::uint32_t call) { return Frame(kResetStream, call, 4); };
  const auto nothing = [](std::uint32_t) { return std::string(); };
  using Frames = std::function<std::string(std::uint32_t)>;
  struct Way {
    const char* name;
    Frames client, server;
    bool ends;
  };
  const auto ended = [](std::uint32_t call) { return Frame(kHeaders, call, 40, kEndHeaders | kEndStream); };
  const auto half_headers = [](std::uint32_t call) {
    return Frame(kHeaders, call, 40) + Frame(kContinuation, call, 5, kEndHeaders);
  };
  const auto whole = [&](std::uint32_t call) { return begin(call) + data(call); };
  const auto trailed = [&](std::uint32_t call) {
    return begin(call) + Frame(kData, call, 300) + Frame(kHeaders, call, 10, kEndHeaders | kEndStream);
  };
  const auto given_up = [&](std::uint32_t call) { return begin(call) + reset(call); };
  const auto large = [&](std::uint32_t call) { return begin(call) + Frame(kData, call, 300); };
  for (const Way& way : std::initializer_list<Way>{
           {"a call", whole, trailers, true},
           {"a call without a message", ended, trailers, true},
           {"a call with trailers", trailed, trailers, true},
           {"refused early", begin, [&](std::uint32_t c) { return trailers(c) + reset(c); }, true},
           {"reset by the server", large, reset, true},
           {"headers alone", begin, nothing, false},
           {"headers in two frames", half_headers, nothing, false},
           {"a message without an end", large, nothing, false},
           {"whole, not answered", whole, nothing, false},
           {"answered, not ended", begin, trailers, false},
       }) {
    now_ += seconds(10);
    const auto meter = NewMeter();
    std::uint32_t call = 1;
    std::optional<Bound> bound;
    for (; call < 2 * 1000 && !bound; call += 2) {
      bound = Read(meter, way.client(call));
      Answer(meter, way.server(call));
    }
    EXPECT_EQ(bound, way.ends ? std::nullopt : std::optional(Bound::kCalls)) << way.name;
    EXPECT_EQ(call, way.ends ? 2001 : 2 * kMostCalls + 3) << way.name;
    EXPECT_EQ(calls_.open(), 0u) << way.name << ": what is cut off has no calls";
    if (way.ends) {
      EXPECT_EQ(Read(meter, Frame(kPing, 0, 8)), std::nullopt);
    }
  }
  const auto meter = NewMeter();
  for (std::uint32_t call = 1; call < 400; call += 2) EXPECT_EQ(Read(meter, given_up(call)), std::nullopt);
  EXPECT_EQ(calls_.open(), 0u);
}

TEST_F(FrameMeterTest, CountsNoStreamsThatGrpcSkips) {
  const auto meter = NewMeter();
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(Read(meter, Frame(kHeaders, 2 + 2 * i, 40, kEndHeaders)), std::nullopt) << "the server's";
  }
  ASSERT_EQ(Read(meter, Frame(kHeaders, 9, 40, kEndHeaders)), std::nullopt);
  ASSERT_EQ(Read(meter, Frame(kHeaders, 7, 40, kEndHeaders)), std::nullopt) << "out of order";
  EXPECT_EQ(calls_.open(), 1u);
}

TEST_F(FrameMeterTest, LetsNoConnectionHaveMoreOpenCallsThanAreLeft) {
  calls_.Limit(2000, 1000);  // 1000 for the first call of each connection
  std::vector<std::unique_ptr<FrameMeter>> greedy;
  std::vector<std::uint32_t> calls(9, 1);
  // Nine take what they can, each as much as the others.
  for (int connection = 0; connection < 9; ++connection) greedy.push_back(NewMeter());
  for (int i = 0; i < 101; ++i) {
    for (std::size_t c = 0; c < greedy.size(); ++c) {
      ASSERT_EQ(Read(greedy[c], Frame(kHeaders, calls[c], 40, kEndHeaders)), std::nullopt) << i;
      calls[c] += 2;
    }
  }
  EXPECT_EQ(calls_.open(), 909u);
  const auto newcomer = NewMeter();
  for (std::uint32_t call = 1; call < 2 * 51; call += 2) {
    ASSERT_EQ(Read(newcomer, Frame(kHeaders, call, 40, kEndHeaders)), std::nullopt) << call;
  }
  EXPECT_EQ(Read(greedy[0], Frame(kHeaders, calls[0], 40, kEndHeaders)), Bound::kSharedCalls);
  EXPECT_EQ(calls_.open(), 859u) << "its calls are gone";
  EXPECT_EQ(Read(newcomer, Frame(kHeaders, 103, 40, kEndHeaders)), std::nullopt);
  greedy.clear();
  EXPECT_EQ(calls_.open(), 52u);
}

TEST_F(FrameMeterTest, FindsFramesHoweverBytesAreCut) {
  std::string calls;
  std::string answers;
  for (std::uint32_t call = 1; call < 401; call += 2) {
    calls += Frame(kHeaders, call, 100, 4) + Frame(kData, call, 300, 1);
    answers += Frame(kHeaders, call, 40, kEndHeaders | kEndStream);
  }
  const std::string flood = calls + Times(kFirst + 1000, Frame(kPriority, 0, 0));
  for (const std::size_t piece : {1, 2, 8, 9, 10, 1000}) {
    now_ += seconds(10);
    const auto meter = NewMeter();
    std::size_t read = 0;
    while (read < flood.size() && !(bound_ = Read(meter, flood.substr(read, piece)))) read += piece;
    EXPECT_EQ(bound_, Bound::kFrames) << piece;
    const auto answered = NewMeter();
    ASSERT_EQ(Read(answered, calls), std::nullopt);
    EXPECT_EQ(calls_.open(), 200u);
    for (std::size_t sent = 0; sent < answers.size(); sent += piece)
      Answer(answered, answers.substr(sent, piece));
    EXPECT_EQ(calls_.open(), 0u) << piece;
    // The calls pay for some of the flood.
    EXPECT_GE(read + piece, calls.size() + 9UL * kFirst) << piece;
  }
}

}  // namespace
}  // namespace slotwise
