// FrameMeter reads the frames of one HTTP/2 connection before gRPC does, and says when the connection has
// passed a bound.
//
// gRPC 1.51 bounds the messages of calls, but neither the headers of a request that never end (a HEADERS
// frame and CONTINUATION frames without number), nor how many frames a connection sends that carry no
// message, nor how many calls are open (open_calls.h). The meter looks at each frame's header
// (frame_reader.h):
//
// - A block of headers has a most of bytes.
// - A connection has a most of open calls, and so do all connections. What the server sends is looked at,
//   too, for the calls that it ends.
// - A frame costs: an empty or a padded DATA frame 1, and one with bytes so much less, down to nothing; a
//   RST_STREAM, by which a call is given up, kReset; a PING or SETTINGS that gRPC has to answer, kAnswered;
//   each other 1; and each but DATA and HEADERS 1 more for each 64 bytes. The
//   HEADERS of a new call cost nothing and pay for kFramesOfCall frames, so calls may be as tiny and as many
//   as a client likes. What the peer has taken of our replies pays for the WINDOW_UPDATEs that say so.
// - What is not paid for so comes out of an allowance, which grows with time: a small, quiet one that is the
//   connection's alone, and beyond it another of the connection and one that all connections share.
//
// Thread-safety: one thread at a time; meters share SharedFrames and SharedCalls.
#ifndef SLOTWISE_SERVER_RPC_FRAME_METER_H_
#define SLOTWISE_SERVER_RPC_FRAME_METER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "server/rpc/frame_allowance.h"
#include "server/rpc/frame_reader.h"
#include "server/rpc/open_calls.h"

namespace slotwise {

class FrameMeter {
 public:
  using Clock = FrameBucket::Clock;
  // Returns how many bytes of ours the peer has taken since the connection began.
  using BytesTaken = std::function<std::uint64_t()>;

  enum class Bound { kHeaders, kFrames, kSharedFrames, kCalls, kSharedCalls };

  // gRPC refuses headers of more than 16 KiB, once it has all of them.
  static constexpr std::uint32_t kMostHeaderBytes = 32 << 10;
  // Frames a second of a connection that nothing pays for.
  static constexpr double kFramesASecond = 16'384;
  // Frames a second that a connection may send whatever others do.
  static constexpr double kQuietFramesASecond = 64;
  // What a call that is given up costs, in frames.
  static constexpr double kReset = 20;
  // What a frame that gRPC answers costs, in frames.
  static constexpr double kAnswered = 16;

  // The shared ones outlive the meter. The connection may have `most_calls` open.
  FrameMeter(SharedFrames& frames, SharedCalls& calls, std::uint64_t most_calls, BytesTaken bytes_taken,
             Clock::time_point now);

  // Reads what came next on the connection. Returns the bound that the connection has passed, from then on
  // for good, or nothing.
  std::optional<Bound> Read(std::span<const std::byte> bytes, Clock::time_point now);
  // Reads what the server sent next.
  void ReadSent(std::span<const std::byte> bytes);

 private:
  void Take(const FrameHeader& frame);
  void Open(std::uint32_t stream);
  void Pay(Clock::time_point now);
  double PayByReplies(double frames);

  SharedFrames& shared_;
  OpenCalls calls_;
  const BytesTaken bytes_taken_;
  FrameBucket quiet_;
  FrameBucket own_;
  FrameReader received_;
  FrameReader sent_{0};
  std::uint32_t newest_call_ = 0;  // its stream
  std::uint64_t block_bytes_ = 0;  // of the newest block of headers
  double cost_ = 0;                // of the frames since the last payment
  std::uint64_t bytes_paid_ = 0;   // of bytes_taken_, what has paid
  std::optional<Bound> passed_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_FRAME_METER_H_
