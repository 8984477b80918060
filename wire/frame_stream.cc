#include "wire/frame_stream.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <asio/error.hpp>
#include <asio/post.hpp>
#include <asio/read.hpp>
#include <asio/socket_base.hpp>
#include <asio/write.hpp>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

namespace slotwise {
namespace {

// Asio's own conditions read and write at most 64 KiB at a time.
struct Whole {
  std::size_t operator()(const asio::error_code& error, std::size_t) const {
    return error ? 0 : std::size_t{1} << 30;
  }
};

template <class T>
T LittleEndian(const std::byte* from) {
  static_assert(std::endian::native == std::endian::little);
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

constexpr std::array<std::byte, kArrayAlign> kZeros{};

}  // namespace

void AddArray(std::span<const std::byte> array, std::vector<std::span<const std::byte>>& body) {
  if (array.empty()) return;
  body.push_back(array);
  const std::size_t padding = PaddedBytes(array.size()) - array.size();
  if (padding > 0) body.push_back(std::span(kZeros).first(padding));
}

FrameStream::FrameStream(Socket socket, const Limits& limits)
    : socket_(std::move(socket)),
      limits_(limits),
      read_timer_(socket_.get_executor()),
      write_timer_(socket_.get_executor()),
      buffer_(std::make_unique_for_overwrite<std::byte[]>(kBufferBytes)) {}

void FrameStream::Start() {
  asio::error_code ignored;  // a broken socket shows when it is read
  socket_.non_blocking(true, ignored);
  asio::post(executor(), [self = shared_from_this()] { self->Read(); });
}

// --- reading

void FrameStream::Resume() {
  asio::post(executor(), [self = shared_from_this()] {
    if (!std::exchange(self->paused_, false)) return;
    self->Read();
  });
}

void FrameStream::Watch(asio::steady_timer& timer, const std::uint64_t& epoch,
                        std::chrono::milliseconds limit, std::string_view what) {
  if (limit.count() == 0) return;
  timer.expires_after(limit);
  timer.async_wait(
      [weak = weak_from_this(), what, limit, &epoch, then = epoch](const asio::error_code& error) {
        if (error) return;
        if (const auto self = weak.lock(); self != nullptr && epoch == then) {
          self->EndNow(std::string(what) + " within " + std::to_string(limit.count()) + " ms");
        }
      });
}

void FrameStream::Read() {
  if (reading_ || paused_) return;
  while (why_.empty()) {
    if (part_ == Part::kBody && body_left_ > 0 && !room_.skip && buffered() == 0) return ReadBody();
    if (TakeFromBuffer()) return ReadIntoBuffer();
    if (paused_) return;
  }
  EndIfIdle();
}

bool FrameStream::TakeFromBuffer() {
  const std::byte* const from = buffer_.get() + begin_;
  switch (part_) {
    case Part::kPrefix: {
      if (buffered() < kPrefixBytes) return true;
      head_bytes_ = LittleEndian<std::uint32_t>(from);
      const auto reserved = LittleEndian<std::uint32_t>(from + 4);
      body_left_ = LittleEndian<std::uint64_t>(from + 8);
      begin_ += kPrefixBytes;
      if (reserved != 0 || body_left_ > limits_.frame_bytes ||
          head_bytes_ > limits_.frame_bytes - body_left_) {
        EndNow("a frame has a head of " + std::to_string(head_bytes_) + " bytes and a body of " +
               std::to_string(body_left_) + ": at most " + std::to_string(limits_.frame_bytes) +
               " are taken, or it is no frame");
        return false;
      }
      if (head_bytes_ > limits_.head_bytes) {
        EndNow("a frame has a head of " + std::to_string(head_bytes_) + " bytes: at most " +
               std::to_string(limits_.head_bytes) + " are taken");
        return false;
      }
      head_.clear();
      head_room_ = kBufferBytes;
      part_ = Part::kHead;
      return false;
    }
    case Part::kHead: {
      const std::size_t size = std::min(buffered(), head_bytes_ - head_.size());
      std::span<const std::byte> head(from, size);
      begin_ += size;
      if (size < head_bytes_) {
        // The bytes of a head that were announced but have not come are not charged for.
        if (head_.size() + size > head_room_) {
          head_room_ = std::min(head_bytes_, 2 * (head_.size() + size));
          if (!OnLargeHead(head_room_)) {
            EndNow("there is no memory for a frame's head of " + std::to_string(head_bytes_) + " bytes");
            return false;
          }
          head_.reserve(head_room_);
        }
        head_.insert(head_.end(), head.begin(), head.end());
        if (head_.size() < head_bytes_) return true;
        head = head_;
      }
      std::string why;
      auto room = OnHead(head, body_left_, why);
      if (!room) {
        EndNow(why);
        return false;
      }
      room_ = std::move(*room);
      part_ = Part::kBody;
      if (body_left_ == 0) EndBody();
      return false;
    }
    case Part::kBody: {
      if (buffered() == 0) return true;
      if (room_.skip) {
        const std::size_t size = std::min<std::uint64_t>(buffered(), body_left_);
        begin_ += size;
        body_left_ -= size;
      } else {
        while (body_left_ > 0 && buffered() > 0) {
          asio::mutable_buffer& to = room_.buffers.front();
          const std::size_t size = std::min(buffered(), to.size());
          std::memcpy(to.data(), buffer_.get() + begin_, size);
          begin_ += size;
          body_left_ -= size;
          to += size;
          if (to.size() == 0) room_.buffers.erase(room_.buffers.begin());
        }
      }
      if (body_left_ == 0) EndBody();
      return false;
    }
  }
  return false;
}

void FrameStream::EndBody() {
  part_ = Part::kPrefix;
  room_ = {};
  // The head is not charged for any more. `= {}` would keep its memory.
  if (head_.capacity() > kBufferBytes) head_ = std::vector<std::byte>();
  ++read_epoch_;
  if (std::exchange(frame_begun_, false)) read_timer_.cancel();
  if (!OnBody()) paused_ = true;
}

void FrameStream::ReadIntoBuffer() {
  // The buffer holds less than a frame's prefix, or nothing.
  std::memmove(buffer_.get(), buffer_.get() + begin_, buffered());
  end_ -= std::exchange(begin_, 0);
  const bool amid_frame = part_ != Part::kPrefix || end_ > 0;
  if (amid_frame && !std::exchange(frame_begun_, true)) {
    Watch(read_timer_, read_epoch_, limits_.read_timeout, "the rest of a frame did not come");
  }
  reading_ = true;
  socket_.async_read_some(asio::buffer(buffer_.get() + end_, kBufferBytes - end_),
                          [self = shared_from_this()](const asio::error_code& error, std::size_t size) {
                            self->reading_ = false;
                            self->end_ += size;
                            if (error) self->EndNow(error.message(), true);
                            self->Read();
                          });
}

void FrameStream::ReadBody() {
  if (!std::exchange(frame_begun_, true)) {
    Watch(read_timer_, read_epoch_, limits_.read_timeout, "the rest of a frame did not come");
  }
  reading_ = true;
  asio::async_read(socket_, room_.buffers, Whole(),
                   [self = shared_from_this()](const asio::error_code& error, std::size_t) {
                     self->reading_ = false;
                     if (error) {
                       self->EndNow(error.message(), true);
                     } else {
                       self->body_left_ = 0;
                       self->EndBody();
                     }
                     self->Read();
                   });
}

// --- writing

namespace {

std::size_t BytesOf(const OutgoingFrame& frame) {
  std::size_t bytes = 16 + frame.head.size();
  for (const auto& piece : frame.body) bytes += piece.size();
  return bytes;
}

}  // namespace

void FrameStream::Send(OutgoingFrame frame) {
  Outgoing outgoing;
  const auto head_bytes = static_cast<std::uint32_t>(frame.head.size());
  std::uint64_t body_bytes = 0;
  for (const auto& piece : frame.body) body_bytes += piece.size();
  std::memcpy(outgoing.prefix.data(), &head_bytes, sizeof(head_bytes));
  std::memcpy(outgoing.prefix.data() + 8, &body_bytes, sizeof(body_bytes));
  outgoing.frame = std::move(frame);
  std::function<void()> done;
  bool over = true;
  {
    const std::lock_guard lock(mutex_);
    if (ended_) {
      done = std::move(outgoing.frame.done);
    } else {
      queue_.push_back(std::move(outgoing));
      if (std::exchange(writing_, true)) return;
      over = WriteNow();
      if (over) {
        writing_ = false;
        done = std::move(queue_.front().frame.done);
        queue_.pop_front();
      }
    }
  }
  if (!over) return asio::post(executor(), [self = shared_from_this()] { self->Write(); });
  if (done) done();
}

template <class Buffer>
void FrameStream::AddBuffers(const Outgoing& outgoing, std::vector<Buffer>& buffers) {
  const auto add = [&](const void* from, std::size_t size) {
    if (size > 0) buffers.push_back(Buffer{const_cast<void*>(from), size});
  };
  add(outgoing.prefix.data(), outgoing.prefix.size());
  add(outgoing.frame.head.data(), outgoing.frame.head.size());
  for (const auto& piece : outgoing.frame.body) add(piece.data(), piece.size());
}

bool FrameStream::WriteNow() {
  const Outgoing& only = queue_.front();
  const std::size_t bytes = BytesOf(only.frame);
  if (bytes > kSmall) return false;
  std::vector<iovec> pieces;
  AddBuffers(only, pieces);
  constexpr std::size_t kMostPieces = 64;
  if (pieces.size() > kMostPieces) return false;
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  const ssize_t sent = sendmsg(socket_.native_handle(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent > 0) written_ = static_cast<std::size_t>(sent);  // Write meets an error again
  if (written_ < bytes) return false;
  written_ = 0;
  return true;
}

void FrameStream::Write() {
  constexpr std::size_t kPiecesAtOnce = 64;
  constexpr std::size_t kBytesAtOnce = std::size_t{1} << 20;
  std::vector<asio::const_buffer> buffers;
  std::deque<Outgoing> dropped;
  std::size_t frames = 0;
  {
    const std::lock_guard lock(mutex_);
    if (ended_) {
      dropped.swap(queue_);
      writing_ = false;
    } else if (queue_.empty()) {
      writing_ = false;
      return;
    } else {
      std::size_t bytes = 0;
      do {
        bytes += BytesOf(queue_[frames].frame);
        AddBuffers(queue_[frames++], buffers);
      } while (frames < queue_.size() && buffers.size() < kPiecesAtOnce && bytes < kBytesAtOnce);
      std::size_t skip = std::exchange(written_, 0);
      auto first = buffers.begin();
      for (; skip > 0; ++first) {
        const std::size_t size = std::min(skip, first->size());
        *first += size;
        skip -= size;
        if (first->size() > 0) break;
      }
      buffers.erase(buffers.begin(), first);
    }
  }
  if (frames == 0) {
    for (const Outgoing& outgoing : dropped) {
      if (outgoing.frame.done) outgoing.frame.done();
    }
    return EndIfIdle();
  }
  Watch(write_timer_, write_epoch_, limits_.write_timeout, "what was sent was not taken");
  asio::async_write(socket_, buffers, Whole(),
                    [self = shared_from_this(), frames](const asio::error_code& error, std::size_t) {
                      ++self->write_epoch_;
                      self->write_timer_.cancel();
                      if (error) {
                        self->EndNow(error.message(), true);
                      } else {
                        self->DropSent(frames);
                      }
                      self->Write();
                    });
}

void FrameStream::DropSent(std::size_t frames) {
  std::vector<std::function<void()>> done;
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < frames; ++i) {
      if (queue_.front().frame.done) done.push_back(std::move(queue_.front().frame.done));
      queue_.pop_front();
    }
  }
  for (const auto& each : done) each();
}

// --- the end

void FrameStream::End(std::string why) {
  asio::post(executor(), [self = shared_from_this(), why = std::move(why)] { self->EndNow(why); });
}

void FrameStream::EndNow(const std::string& why, bool by_peer) {
  if (!why_.empty()) return;
  why_ = why.empty() ? "ended" : why;
  by_peer_ = by_peer;
  {
    const std::lock_guard lock(mutex_);  // no thread may write to a descriptor that another file has got
    ended_ = true;
    asio::error_code ignored;
    // Data that the peer has not taken must not stay in the system's memory.
    if (writing_) socket_.set_option(asio::socket_base::linger(true, 0), ignored);
    socket_.close(ignored);
  }
  read_timer_.cancel();
  write_timer_.cancel();
  EndIfIdle();
}

void FrameStream::EndIfIdle() {
  if (told_ || why_.empty() || reading_) return;
  {
    const std::lock_guard lock(mutex_);
    if (writing_) return;
  }
  told_ = true;
  OnEnd(why_, by_peer_);
}

}  // namespace slotwise
