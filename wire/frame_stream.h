// FrameStream is one end of a connection of the data transport (proto/slotwise/v1/data.proto). It reads and
// writes frames; each body is read to, and written from, its owner's memory.
//
// A frame's head is a message, its body arrays. The owner names the body's destination as soon as the head
// has come, so no byte of an array is copied in user space. Small frames that come together are read from one
// buffer, and small frames that wait are written together.
//
// Thread-safety: the hooks run in the thread of the stream's io_context, one at a time; there must be one
// such thread. Send, Resume and End may be called from any thread.
#ifndef SLOTWISE_WIRE_FRAME_STREAM_H_
#define SLOTWISE_WIRE_FRAME_STREAM_H_

#include <array>
#include <asio/any_io_executor.hpp>
#include <asio/buffer.hpp>
#include <asio/generic/stream_protocol.hpp>
#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "wire/array_align.h"

namespace slotwise {

// A frame to be sent.
struct OutgoingFrame {
  std::string head;
  std::vector<std::span<const std::byte>> body = {};  // pieces, padding included
  std::shared_ptr<const void> keeps = nullptr;        // owns the memory of the pieces
  // Called once the stream does not use the pieces any more, sent or not; from any thread, without a lock.
  std::function<void()> done = nullptr;
};

// Adds an array to a body, with its padding.
void AddArray(std::span<const std::byte> array, std::vector<std::span<const std::byte>>& body);

class FrameStream : public std::enable_shared_from_this<FrameStream> {
 public:
  using Socket = asio::generic::stream_protocol::socket;
  struct Limits {
    std::uint64_t frame_bytes = 0;  // head and body together
    std::uint64_t head_bytes = ~std::uint64_t{0};
    std::chrono::milliseconds write_timeout{0};  // for the peer to take a frame; 0: unlimited
    std::chrono::milliseconds read_timeout{0};   // from a frame's first byte to its last; 0: unlimited
  };

  // The destination of a body.
  struct Room {
    bool skip = false;  // the body is read and dropped
    std::vector<asio::mutable_buffer> buffers = {};
  };

  virtual ~FrameStream() = default;
  FrameStream(const FrameStream&) = delete;
  FrameStream& operator=(const FrameStream&) = delete;

  // Frames are sent in the order of these calls. After the connection's end they are dropped.
  void Send(OutgoingFrame frame);
  // Continues to read after OnBody has returned false.
  void Resume();
  // Ends the connection soon.
  void End(std::string why);

 protected:
  // REQUIRES: the socket is connected and both prefaces have been exchanged.
  FrameStream(Socket socket, const Limits& limits);

  // Begins to read. The stream lives at least until OnEnd has returned.
  void Start();
  asio::any_io_executor executor() { return socket_.get_executor(); }

  static constexpr std::size_t kBufferBytes = std::size_t{16} << 10;

  // Called when a frame's head has come, with a body of `body_bytes` bytes to follow. Returns the
  // destination; nothing, with the reason in `why`, ends the connection.
  virtual std::optional<Room> OnHead(std::span<const std::byte> head, std::uint64_t body_bytes,
                                     std::string& why) = 0;
  // Called when `bytes` bytes of a head of more than kBufferBytes are about to be held; more calls follow as
  // more bytes come. Returns whether there is memory for them.
  virtual bool OnLargeHead(std::uint64_t /*bytes*/) { return true; }
  // Called when the body has come. Returns whether to continue reading at once.
  virtual bool OnBody() = 0;
  // Called once, when the connection has ended and the stream does not use the owner's memory any more.
  // `by_peer`: the peer or the network ended it.
  virtual void OnEnd(const std::string& why, bool by_peer) = 0;

 private:
  static constexpr std::size_t kPrefixBytes = 16;
  struct Outgoing {
    std::array<std::byte, kPrefixBytes> prefix{};
    OutgoingFrame frame;
  };
  // The thread that sends a frame of up to so many bytes writes it itself, if no other frame waits.
  static constexpr std::size_t kSmall = std::size_t{16} << 10;

  // Reading: the io_context's thread.
  void Read();
  bool TakeFromBuffer();  // returns whether more has to be read into the buffer
  void ReadIntoBuffer();
  void ReadBody();
  void EndBody();
  std::size_t buffered() const { return end_ - begin_; }
  // Ends the connection unless `epoch` changes within the limit.
  void Watch(asio::steady_timer& timer, const std::uint64_t& epoch, std::chrono::milliseconds limit,
             std::string_view what);

  // Writing: WriteNow runs in any thread, with mutex_ held; the rest in the io_context's thread.
  template <class Buffer>
  static void AddBuffers(const Outgoing& outgoing, std::vector<Buffer>& buffers);
  bool WriteNow();  // returns whether the only frame is written whole
  void Write();
  void DropSent(std::size_t frames);
  void EndNow(const std::string& why, bool by_peer = false);
  void EndIfIdle();

  Socket socket_;
  const Limits limits_;
  asio::steady_timer read_timer_;
  asio::steady_timer write_timer_;

  // The io_context's thread's:
  std::unique_ptr<std::byte[]> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  enum class Part : std::uint8_t { kPrefix, kHead, kBody } part_ = Part::kPrefix;
  std::size_t head_bytes_ = 0;
  std::size_t head_room_ = 0;  // the bytes of the head that memory was granted for
  std::uint64_t body_left_ = 0;
  std::vector<std::byte> head_;
  Room room_;
  bool paused_ = false;
  bool reading_ = false;  // an operation is under way
  bool frame_begun_ = false;
  std::uint64_t read_epoch_ = 0;
  std::uint64_t write_epoch_ = 0;
  std::string why_;
  bool by_peer_ = false;
  bool told_ = false;

  std::mutex mutex_;
  // Guarded by mutex_:
  std::deque<Outgoing> queue_;
  std::size_t written_ = 0;  // bytes of the first frame
  bool writing_ = false;     // an operation is under way, or about to be
  bool ended_ = false;
};

}  // namespace slotwise

#endif  // SLOTWISE_WIRE_FRAME_STREAM_H_
