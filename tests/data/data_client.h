// DataClient speaks the data transport byte by byte, so that a test can send any bytes.
// Thread-safety: one thread.
#ifndef SLOTWISE_TESTS_DATA_DATA_CLIENT_H_
#define SLOTWISE_TESTS_DATA_DATA_CLIENT_H_

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "slotwise/v1/data.pb.h"
#include "wire/data_version.h"
#include "wire/frame_stream.h"
#include "wire/shared_memory.h"

namespace slotwise::test {

// Returns the bytes before a frame's head.
inline std::string PrefixOf(std::uint32_t head_bytes, std::uint64_t body_bytes) {
  std::string prefix(16, 0);
  std::memcpy(prefix.data(), &head_bytes, sizeof(head_bytes));
  std::memcpy(prefix.data() + 8, &body_bytes, sizeof(body_bytes));
  return prefix;
}
inline std::string FrameOf(const std::string& head, const std::string& body) {
  return PrefixOf(static_cast<std::uint32_t>(head.size()), body.size()) + head + body;
}

class DataClient {
 public:
  explicit DataClient(std::uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    LimitWaits();
  }
  // Connects to a Unix socket of the abstract namespace.
  explicit DataClient(const std::string& local) : socket_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, local.data(), local.size());
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + local.size());
    EXPECT_EQ(::connect(socket_, reinterpret_cast<const sockaddr*>(&address), size), 0);
    LimitWaits();
  }
  ~DataClient() { Close(); }
  DataClient(const DataClient&) = delete;
  DataClient& operator=(const DataClient&) = delete;

  void Close() {
    if (socket_ >= 0) close(std::exchange(socket_, -1));
  }
  int socket() const { return socket_; }

  // Sends bytes. Returns whether all were sent.
  bool SendBytes(const void* bytes, std::size_t size) {
    return send(socket_, bytes, size, MSG_NOSIGNAL) == static_cast<ssize_t>(size);
  }
  bool Greet(std::uint32_t version = kDataVersion, AskedSharedBuffer shared_buffer = {}) {
    const Preface mine = MakePreface(version, shared_buffer);
    return SendBytes(mine.data(), mine.size());
  }
  // Returns the server's version; nothing if the connection has ended.
  std::optional<std::uint32_t> Greeted() {
    Preface theirs{};
    if (!Receive(theirs.data(), theirs.size())) return std::nullopt;
    return VersionIn(theirs);
  }
  void Meet() {
    ASSERT_TRUE(Greet());
    ASSERT_EQ(Greeted(), kDataVersion);
  }

  // Asks for a shared buffer. Returns it, or null if the server gave none.
  std::shared_ptr<SharedMemory> MeetWithSharedBuffer(std::uint32_t shared_buffer_mib,
                                                     bool on_device = false) {
    EXPECT_TRUE(Greet(kDataVersion, {shared_buffer_mib, on_device}));
    pollfd connection{socket_, POLLIN, 0};
    EXPECT_EQ(poll(&connection, 1, 60'000), 1);
    Preface theirs{};
    int descriptor = -1;
    EXPECT_EQ(ReceiveWithDescriptor(socket_, theirs, descriptor), static_cast<ssize_t>(theirs.size()));
    EXPECT_EQ(VersionIn(theirs), kDataVersion);
    EXPECT_EQ(descriptor >= 0, SharedBufferIn(theirs).mib > 0);
    if (descriptor < 0) return nullptr;
    EXPECT_EQ(SharedBufferIn(theirs).on_device, on_device);
    return SharedMemory::Open(descriptor, std::uint64_t{SharedBufferIn(theirs).mib} << 20);
  }

  bool SendFrame(const std::string& head, const std::string& body = {}) {
    const std::string frame = FrameOf(head, body);
    return SendBytes(frame.data(), frame.size());
  }
  bool Send(const v1::DataCall& call, const std::string& body) {
    return SendFrame(call.SerializeAsString(), body);
  }
  bool Send(const std::pair<v1::DataCall, std::string>& call) { return Send(call.first, call.second); }

  struct Reply {
    v1::DataReply head;
    std::string body;
  };
  // Returns the next frame; nothing if the connection has ended.
  std::optional<Reply> Receive() {
    std::array<char, 16> prefix{};
    if (!Receive(prefix.data(), prefix.size())) return std::nullopt;
    std::uint32_t head_bytes = 0;
    std::uint64_t body_bytes = 0;
    std::memcpy(&head_bytes, prefix.data(), sizeof(head_bytes));
    std::memcpy(&body_bytes, prefix.data() + 8, sizeof(body_bytes));
    std::string head(head_bytes, 0);
    Reply reply{{}, std::string(body_bytes, 0)};
    if (!Receive(head.data(), head.size()) || !Receive(reply.body.data(), reply.body.size()))
      return std::nullopt;
    EXPECT_TRUE(reply.head.ParseFromString(head));
    return reply;
  }
  // Sends a call and returns the next frame. Throws std::runtime_error if the connection has ended.
  Reply Ask(const v1::DataCall& call, const std::string& body = {}) {
    std::optional<Reply> reply;
    if (Send(call, body)) reply = Receive();
    if (!reply) throw std::runtime_error("the connection has ended");
    return *std::move(reply);
  }
  Reply Ask(const std::pair<v1::DataCall, std::string>& call) { return Ask(call.first, call.second); }

  // Returns whether the server ends a connection that is not read. TCP may drop a reset beyond a closed
  // window (RFC 5961, section 3.2), so keepalive probes ask again each second.
  bool BrokenOff() {
    const int on = 1;
    setsockopt(socket_, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(socket_, IPPROTO_TCP, TCP_KEEPIDLE, &on, sizeof(on));
    setsockopt(socket_, IPPROTO_TCP, TCP_KEEPINTVL, &on, sizeof(on));
    pollfd connection{socket_, 0, 0};
    return poll(&connection, 1, 60'000) == 1 && (connection.revents & (POLLERR | POLLHUP)) != 0;
  }
  // Returns whether the server has ended the connection, after reading all bytes before the end.
  bool Ended() {
    std::array<char, 4096> bytes{};
    for (;;) {
      const ssize_t size = recv(socket_, bytes.data(), bytes.size(), 0);
      if (size == 0) return true;
      if (size < 0) return errno == ECONNRESET;
    }
  }

 private:
  // Limits waits, so that a test that would wait for ever fails.
  void LimitWaits() const {
    const timeval limit{60, 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  }
  bool Receive(void* to, std::size_t size) {
    auto* next = static_cast<char*>(to);
    while (size > 0) {
      const ssize_t came = recv(socket_, next, size, 0);
      if (came <= 0) return false;
      next += came;
      size -= static_cast<std::size_t>(came);
    }
    return true;
  }

  int socket_;
};

// A client that has exchanged prefaces with the server.
class MetClient : public DataClient {
 public:
  template <class Place>
  explicit MetClient(const Place& place) : DataClient(place) {
    Meet();
  }
};

// A MetClient with a shared buffer. Throws std::runtime_error if the server gives none.
class SharedBufferClient : public DataClient {
 public:
  SharedBufferClient(const std::string& local, std::uint32_t mib, bool on_device = false)
      : DataClient(local), shared_buffer(MeetWithSharedBuffer(mib, on_device)) {
    if (shared_buffer == nullptr) throw std::runtime_error("the server gives no shared buffer");
  }

  const std::shared_ptr<SharedMemory> shared_buffer;
};

}  // namespace slotwise::test

#endif  // SLOTWISE_TESTS_DATA_DATA_CLIENT_H_
