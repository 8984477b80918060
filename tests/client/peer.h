// Peer is the other end of a client's data connection, played by a test. FakeExchange is a call for SendBy.
// Thread-safety: one thread.
#ifndef SLOTWISE_TESTS_CLIENT_PEER_H_
#define SLOTWISE_TESTS_CLIENT_PEER_H_

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <future>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "client/cpp/data_link.h"
#include "slotwise/v1/data.pb.h"
#include "tests/data/data_client.h"
#include "tests/support/loopback.h"
#include "wire/data_version.h"
#include "wire/shared_memory.h"

namespace slotwise::client {

// The other end of one connection, driven byte by byte.
class Peer {
 public:
  // Listens at a Unix socket of that name, and shares a MiB with clients that connect: of host memory, or of
  // a device whose memory is the host's.
  explicit Peer(const std::string& local, bool on_device = false)
      : listener_(::socket(AF_UNIX, SOCK_STREAM, 0)), shares_(true), on_device_(on_device) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, local.data(), local.size());
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + local.size());
    EXPECT_EQ(::bind(listener_, reinterpret_cast<const sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(listener_, 4), 0);
  }
  Peer() : listener_(::socket(AF_INET, SOCK_STREAM, 0)), address_(test::ListenAtLoopback(listener_)) {}
  ~Peer() {
    Hang();
    ::close(listener_);
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  const std::string& address() const { return address_; }

  // Accepts the next connection, and answers with a preface.
  void Meet(std::uint32_t version = kDataVersion) {
    Accept();
    const Preface mine = MakePreface(version, {shares_ ? 1U : 0U, on_device_});
    if (!shares_) return Send(mine.data(), mine.size());
    shared_buffer_ = SharedMemory::Make(std::uint64_t{1} << 20, !on_device_);
    EXPECT_EQ(SendWithDescriptor(connection_, mine, shared_buffer_->descriptor()),
              static_cast<ssize_t>(mine.size()));
  }
  // Accepts the next connection, and answers with half a preface.
  void MeetHalf() {
    Accept();
    Send(MakePreface(kDataVersion).data(), sizeof(Preface) / 2);
  }
  // Returns whether no client has connected and sent anything.
  bool HearsNothing() {
    pollfd waiting{.fd = listener_, .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, 0) == 0) return true;
    const int connection = ::accept(listener_, nullptr, nullptr);
    char any = 0;
    const bool nothing = ::recv(connection, &any, 1, 0) <= 0;  // receives at least the connection's end
    ::close(connection);
    return nothing;
  }
  void Hang() {
    if (connection_ >= 0) ::close(std::exchange(connection_, -1));
  }

  // Receives the next call.
  v1::DataCall Take() {
    std::uint32_t head_bytes = 0;
    std::uint64_t body_bytes = 0;
    char prefix[16] = {};
    Receive(prefix, sizeof(prefix));
    std::memcpy(&head_bytes, prefix, sizeof(head_bytes));
    std::memcpy(&body_bytes, prefix + 8, sizeof(body_bytes));
    std::string head(head_bytes, 0);
    Receive(head.data(), head.size());
    std::string body(body_bytes, 0);
    Receive(body.data(), body.size());
    v1::DataCall call;
    EXPECT_TRUE(call.ParseFromString(head));
    return call;
  }
  // Returns a call's arrays from the memory that this connection shares.
  std::string ArraysOf(const v1::DataCall& call) const {
    const auto place = shared_buffer_->Place(call.allocations().body(), call.allocations().body_bytes());
    EXPECT_TRUE(place);
    return place ? std::string(reinterpret_cast<const char*>(place->data()), place->size()) : std::string();
  }
  void Answer(const v1::DataReply& reply, const std::string& body = {}) {
    const std::string frame = test::FrameOf(reply.SerializeAsString(), body);
    Send(frame.data(), frame.size());
  }
  void Answer(std::uint64_t id) {
    v1::DataReply reply;
    reply.set_id(id);
    Answer(reply);
  }

 private:
  // Accepts the next connection, and receives its preface.
  void Accept() {
    connection_ = ::accept(listener_, nullptr, nullptr);
    ASSERT_GE(connection_, 0);
    const timeval limit{60, 0};  // a test that would wait for ever fails instead
    ::setsockopt(connection_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    Preface theirs{};
    Receive(theirs.data(), theirs.size());
    EXPECT_EQ(VersionIn(theirs), kDataVersion);
  }
  void Send(const void* bytes, std::size_t size) const {
    EXPECT_EQ(::send(connection_, bytes, size, MSG_NOSIGNAL), static_cast<ssize_t>(size));
  }
  void Receive(void* bytes, std::size_t size) const {
    if (size == 0) return;
    EXPECT_EQ(::recv(connection_, bytes, size, MSG_WAITALL), static_cast<ssize_t>(size));
  }

  int listener_;
  int connection_ = -1;
  std::string address_;
  bool shares_ = false;
  bool on_device_ = false;
  std::shared_ptr<SharedMemory> shared_buffer_;  // the memory that the connection shares
};

// A call without arrays.
class FakeExchange : public DataExchange {
 public:
  void Write(v1::DataCall& /*call*/, Body& /*body*/) override {
    if (no_memory) throw std::bad_alloc();
  }
  Result<Room> MakeRoom(const v1::DataReply& /*reply*/) override { return Room{}; }
  std::uint64_t ValueBytes() const override { return value_bytes; }
  Status Read(const v1::DataReply& /*reply*/) override { return {}; }

  bool no_memory = false;
  std::uint64_t value_bytes = 0;
};

struct Outcome {
  StatusCode code;
  std::string message;
  Status read;
};
struct SentCall {
  std::future<Outcome> outcome;
  Transport::Cancel cancel;
};

// Sends a call on the link, and ends a push's turn like the client.
inline SentCall SendBy(DataLink& link, std::shared_ptr<DataExchange> exchange,
                       std::chrono::milliseconds timeout = std::chrono::minutes(1)) {
  const auto promise = std::make_shared<std::promise<Outcome>>();
  const OnDevice* const of = exchange->on_device();
  auto ended = [promise, turn = of == nullptr ? nullptr : of->turn](const Status& answer,
                                                                    const Transport::Read& read) {
    const Status said = answer.ok() ? read() : Status();
    if (turn) turn->End(answer.ok() && said.ok());
    promise->set_value({answer.code(), answer.message(), said});
  };
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  auto cancel = link.Send(std::move(exchange), {.deadline = deadline}, std::move(ended));
  return {promise->get_future(), std::move(cancel)};
}

}  // namespace slotwise::client

#endif  // SLOTWISE_TESTS_CLIENT_PEER_H_
