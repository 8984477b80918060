// FrameReader finds the HTTP/2 frames that one side of a connection sends, in pieces of any size. It reads
// the nine bytes at the start of each frame, and skips the rest.
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_SERVER_RPC_FRAME_READER_H_
#define SLOTWISE_SERVER_RPC_FRAME_READER_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace slotwise {

enum FrameType : std::uint8_t {
  kData = 0,
  kHeaders = 1,
  kResetStream = 3,
  kSettings = 4,
  kPing = 6,
  kContinuation = 9
};

struct FrameHeader {
  static constexpr std::uint8_t kAnswer = 1;  // of PING and SETTINGS
  static constexpr std::uint8_t kEndStream = 1;
  static constexpr std::uint8_t kPadded = 8;

  std::uint32_t size;  // bytes after the header
  std::uint8_t type;
  std::uint8_t flags;
  std::uint32_t stream;

  bool has(std::uint8_t flag) const { return (flags & flag) != 0; }
  // Returns whether this is the sender's last frame on the stream.
  bool ends_stream() const { return (type == kData || type == kHeaders) && has(kEndStream); }
};

class FrameReader {
 public:
  // `before_frames` is the number of bytes before the first frame.
  explicit FrameReader(std::uint64_t before_frames) : to_skip_(before_frames) {}

  // Calls `take` for each frame whose header is whole, until `take` returns false.
  template <class Take>
  void Read(std::span<const std::byte> bytes, Take take) {
    while (!bytes.empty()) {
      if (to_skip_ > 0) {
        const auto skipped = static_cast<std::size_t>(std::min<std::uint64_t>(to_skip_, bytes.size()));
        to_skip_ -= skipped;
        bytes = bytes.subspan(skipped);
        continue;
      }
      header_.at(header_bytes_++) = ByteOf(bytes.data());
      bytes = bytes.subspan(1);
      if (header_bytes_ == header_.size() && !take(NextFrame())) return;
    }
  }

 private:
  // gRPC made and filled the memory, and ThreadSanitizer does not see how gRPC orders its threads.
  __attribute__((no_sanitize("thread"))) static std::uint8_t ByteOf(const std::byte* bytes) {
    return static_cast<std::uint8_t>(*bytes);
  }

  FrameHeader NextFrame() {
    header_bytes_ = 0;
    const std::uint32_t size = std::uint32_t{header_[0]} << 16 | std::uint32_t{header_[1]} << 8 | header_[2];
    const std::uint32_t stream = (std::uint32_t{header_[5]} << 24 | std::uint32_t{header_[6]} << 16 |
                                  std::uint32_t{header_[7]} << 8 | header_[8]) &
                                 0x7FFF'FFFF;
    to_skip_ = size;
    return {.size = size, .type = header_[3], .flags = header_[4], .stream = stream};
  }

  std::array<std::uint8_t, 9> header_{};
  std::size_t header_bytes_ = 0;  // bytes of the next frame's header that have come
  std::uint64_t to_skip_;         // of the preface, or of the frame
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_FRAME_READER_H_
