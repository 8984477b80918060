// FrameMeter reads the frames of one HTTP/2 connection before gRPC does, and reports that the connection has
// exceeded a bound.
//
// gRPC 1.51 bounds the messages of calls. But it does not bound the headers of an endless request (a HEADERS
// frame and any number of CONTINUATION frames), the frames without a message, or the open calls
// (open_calls.h). The meter looks at each frame's header (frame_reader.h):
//
// - A block of headers has a limited size.
// - A connection has a limited number of open calls, and so have all connections together. Frames from the
//   server are also read, because they end calls.
// - A frame has a cost. An empty or a padded DATA frame costs 1, and less the more bytes it has, down to 0.
//   A RST_STREAM, by which a call is given up, costs kReset; a PING or SETTINGS that gRPC has to answer costs
//   kAnswered; every other frame 1. All but DATA and HEADERS cost 1 more for each 64 bytes. The HEADERS of a
//   new call cost nothing and pay for kFramesOfCall frames, so a client may send any number of tiny calls.
//   Replies that the peer has read pay for the peer's WINDOW_UPDATEs.
// - The remaining cost is paid from allowances that grow with time: first a small, quiet one of the
//   connection, then a larger one of the connection together with one that all connections share.
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
  // Returns how many of our bytes the peer has read since the connection began.
  using BytesTaken = std::function<std::uint64_t()>;

  enum class Bound { kHeaders, kFrames, kSharedFrames, kCalls, kSharedCalls };

  // gRPC refuses headers of more than 16 KiB, once it has all of them.
  static constexpr std::uint32_t kMostHeaderBytes = 32 << 10;
  // The allowance of a connection, in frames a second.
  static constexpr double kFramesASecond = 16'384;
  // The quiet allowance of a connection, in frames a second, which is independent of other connections.
  static constexpr double kQuietFramesASecond = 64;
  // The cost of giving a call up, in frames.
  static constexpr double kReset = 20;
  // The cost of a frame that gRPC answers, in frames.
  static constexpr double kAnswered = 16;

  // `frames` and `calls` outlive the meter. The connection may have `most_calls` open.
  FrameMeter(SharedFrames& frames, SharedCalls& calls, std::uint64_t most_calls, BytesTaken bytes_taken,
             Clock::time_point now);

  // Reads the next bytes from the peer. Returns the bound that the connection has exceeded, from then on
  // always, or nothing.
  std::optional<Bound> Read(std::span<const std::byte> bytes, Clock::time_point now);
  // Reads the next bytes from the server.
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
  std::uint32_t newest_call_ = 0;  // its stream's number
  std::uint64_t block_bytes_ = 0;  // of the newest block of headers
  double cost_ = 0;                // of the frames since the last payment
  std::uint64_t bytes_paid_ = 0;   // the part of bytes_taken_ that has paid
  std::optional<Bound> passed_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_FRAME_METER_H_
