#include "server/rpc/frame_meter.h"

#include <algorithm>
#include <utility>

namespace slotwise {
namespace {

// The bytes at a connection's beginning: "PRI * HTTP/2.0" and so on. gRPC checks them.
constexpr std::uint64_t kPreface = 24;

// A call pays for the frames of its end, and for its caller's window updates.
constexpr double kFramesOfCall = 4;
// A DATA frame with this many bytes costs nothing.
constexpr double kBytesOfFrame = 256;
constexpr double kBytesOfControl = 64;
// Clients open their windows for many times this many bytes at once.
constexpr std::uint64_t kBytesOfReply = 1024;

constexpr double kMostQuiet = 16 * FrameMeter::kQuietFramesASecond;
constexpr double kMostFrames = 4 * FrameMeter::kFramesASecond;
// The allowances at a connection's beginning are small: many short ones must not send more than a long one.
constexpr double kFirstQuiet = FrameMeter::kQuietFramesASecond;
constexpr double kFirstFrames = FrameMeter::kFramesASecond / 4;

}  // namespace

FrameMeter::FrameMeter(SharedFrames& frames, SharedCalls& calls, std::uint64_t most_calls,
                       BytesTaken bytes_taken, Clock::time_point now)
    : shared_(frames),
      calls_(calls, most_calls),
      bytes_taken_(std::move(bytes_taken)),
      quiet_(kQuietFramesASecond, kMostQuiet, kFirstQuiet, now),
      own_(kFramesASecond, kMostFrames, kFirstFrames, now),
      received_(kPreface) {}

std::optional<FrameMeter::Bound> FrameMeter::Read(std::span<const std::byte> bytes, Clock::time_point now) {
  if (passed_) return passed_;
  received_.Read(bytes, [this](const FrameHeader& frame) {
    Take(frame);
    return !passed_;
  });
  if (!passed_ && cost_ != 0) Pay(now);
  if (passed_) calls_.CloseAll();  // gRPC will end the connection
  return passed_;
}

void FrameMeter::ReadSent(std::span<const std::byte> bytes) {
  sent_.Read(bytes, [this](const FrameHeader& frame) {
    if (frame.type == kResetStream) calls_.Reset(frame.stream);
    if (frame.ends_stream()) calls_.EndByServer(frame.stream);
    return true;
  });
}

void FrameMeter::Take(const FrameHeader& frame) {
  switch (frame.type) {
    case kData:
      cost_ += frame.has(FrameHeader::kPadded) ? 1 : std::max(0.0, 1 - frame.size / kBytesOfFrame);
      break;
    case kHeaders:
      if (frame.stream > newest_call_ && frame.stream % 2 == 1) {
        cost_ -= kFramesOfCall;
        Open(frame.stream);
      } else {  // it ends a call, or gRPC skips it
        cost_ += 1;
      }
      block_bytes_ = frame.size;
      break;
    case kContinuation:
      cost_ += 1;
      block_bytes_ += frame.size;
      break;
    case kResetStream:
      cost_ += kReset;
      calls_.Reset(frame.stream);
      break;
    case kSettings:
    case kPing:
      cost_ += (frame.has(FrameHeader::kAnswer) ? 1 : kAnswered) + frame.size / kBytesOfControl;
      break;
    default:
      cost_ += 1 + frame.size / kBytesOfControl;
      break;
  }
  if (frame.ends_stream()) calls_.EndByClient(frame.stream);
  if (block_bytes_ > kMostHeaderBytes) passed_ = Bound::kHeaders;
}

void FrameMeter::Open(std::uint32_t stream) {
  newest_call_ = stream;
  switch (calls_.Open(stream)) {
    case OpenCalls::Opened::kYes:
      break;
    case OpenCalls::Opened::kTooManyOfConnection:
      passed_ = Bound::kCalls;
      break;
    case OpenCalls::Opened::kTooManyOfAll:
      passed_ = Bound::kSharedCalls;
      break;
  }
}

// Pays for the frames since the last payment, or notes the bound that is exceeded.
void FrameMeter::Pay(Clock::time_point now) {
  const double cost = std::exchange(cost_, 0);
  if (cost < 0) return quiet_.Add(-cost);
  double unpaid = quiet_.Take(cost, now);
  if (unpaid > 0) unpaid = PayByReplies(unpaid);
  if (unpaid <= 0) return;
  if (own_.Take(unpaid, now) > 0) {
    passed_ = Bound::kFrames;
  } else if (!shared_.Take(unpaid, now)) {
    passed_ = Bound::kSharedFrames;
  }
}

// Returns the number of frames that replies do not pay for.
double FrameMeter::PayByReplies(double frames) {
  const std::uint64_t taken = bytes_taken_();
  // Replies that were read long ago pay for one burst at most.
  constexpr auto kMostBytes = static_cast<std::uint64_t>(kMostFrames) * kBytesOfReply;
  bytes_paid_ = std::max(bytes_paid_, taken - std::min(taken, kMostBytes));
  const std::uint64_t whole = (taken - std::min(taken, bytes_paid_)) / kBytesOfReply;
  const double paid = std::min(frames, static_cast<double>(whole));
  bytes_paid_ += static_cast<std::uint64_t>(paid * kBytesOfReply);
  return frames - paid;
}

}  // namespace slotwise
