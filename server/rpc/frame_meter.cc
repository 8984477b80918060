#include "server/rpc/frame_meter.h"

#include <algorithm>
#include <utility>

namespace slotwise {
namespace {

// What a connection begins with: "PRI * HTTP/2.0" and so on. gRPC looks at it.
constexpr std::uint64_t kPreface = 24;

enum FrameType : std::uint8_t {
  kData = 0,
  kHeaders = 1,
  kResetStream = 3,
  kSettings = 4,
  kPing = 6,
  kContinuation = 9
};
constexpr std::uint8_t kAnswer = 1;
constexpr std::uint8_t kPadded = 8;

// A call's end, and what its caller says about windows.
constexpr double kFramesOfCall = 4;
// A DATA frame with so many bytes is no burden for being a frame.
constexpr double kBytesOfFrame = 256;
constexpr double kBytesOfControl = 64;
// Clients open their windows for many times as many bytes at once.
constexpr std::uint64_t kBytesOfReply = 1024;

constexpr double kMostQuiet = 16 * FrameMeter::kQuietFramesASecond;
constexpr double kMostFrames = 4 * FrameMeter::kFramesASecond;
// Before time has passed, so that many short connections cannot send what one may not.
constexpr double kFirstQuiet = FrameMeter::kQuietFramesASecond;
constexpr double kFirstFrames = FrameMeter::kFramesASecond / 4;

// gRPC's library made and filled the memory, and ThreadSanitizer does not see how it orders its threads.
__attribute__((no_sanitize("thread"))) std::uint8_t ByteOf(const std::byte* bytes) {
  return static_cast<std::uint8_t>(*bytes);
}

}  // namespace

FrameMeter::FrameMeter(SharedFrames& shared, BytesTaken bytes_taken, Clock::time_point now)
    : shared_(shared),
      bytes_taken_(std::move(bytes_taken)),
      quiet_(kQuietFramesASecond, kMostQuiet, kFirstQuiet, now),
      own_(kFramesASecond, kMostFrames, kFirstFrames, now),
      header_bytes_(0),
      to_skip_(kPreface) {}

std::optional<FrameMeter::Bound> FrameMeter::Read(std::span<const std::byte> bytes, Clock::time_point now) {
  while (!bytes.empty() && !passed_) {
    if (to_skip_ > 0) {
      const auto skipped = static_cast<std::size_t>(std::min<std::uint64_t>(to_skip_, bytes.size()));
      to_skip_ -= skipped;
      bytes = bytes.subspan(skipped);
      continue;
    }
    header_.at(header_bytes_++) = ByteOf(bytes.data());
    bytes = bytes.subspan(1);
    if (header_bytes_ == kFrameHeader) BeginFrame();
  }
  if (!passed_ && cost_ != 0) Pay(now);
  return passed_;
}

void FrameMeter::BeginFrame() {
  header_bytes_ = 0;
  const std::uint32_t size = std::uint32_t{header_[0]} << 16 | std::uint32_t{header_[1]} << 8 | header_[2];
  const bool padded = (header_[4] & kPadded) != 0;
  const std::uint32_t stream = (std::uint32_t{header_[5]} << 24 | std::uint32_t{header_[6]} << 16 |
                                std::uint32_t{header_[7]} << 8 | header_[8]) &
                               0x7FFF'FFFF;
  to_skip_ = size;
  switch (header_[3]) {
    case kData:
      cost_ += padded ? 1 : std::max(0.0, 1 - size / kBytesOfFrame);
      return;
    case kHeaders:
      cost_ += stream > newest_call_ ? -kFramesOfCall : 1;
      newest_call_ = std::max(newest_call_, stream);
      block_bytes_ = size;
      break;
    case kContinuation:
      cost_ += 1;
      block_bytes_ += size;
      break;
    case kResetStream:
      cost_ += kReset;
      return;
    case kSettings:
    case kPing:
      cost_ += ((header_[4] & kAnswer) != 0 ? 1 : kAnswered) + size / kBytesOfControl;
      return;
    default:
      cost_ += 1 + size / kBytesOfControl;
      return;
  }
  if (block_bytes_ > kMostHeaderBytes) passed_ = Bound::kHeaders;
}

// Notes the bound that is passed if nothing pays for the frames.
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

// Returns the frames that replies do not pay for.
double FrameMeter::PayByReplies(double frames) {
  const std::uint64_t taken = bytes_taken_();
  // What was taken long ago pays for a burst at most.
  constexpr auto kMostBytes = static_cast<std::uint64_t>(kMostFrames) * kBytesOfReply;
  bytes_paid_ = std::max(bytes_paid_, taken - std::min(taken, kMostBytes));
  const std::uint64_t whole = (taken - std::min(taken, bytes_paid_)) / kBytesOfReply;
  const double paid = std::min(frames, static_cast<double>(whole));
  bytes_paid_ += static_cast<std::uint64_t>(paid * kBytesOfReply);
  return frames - paid;
}

}  // namespace slotwise
