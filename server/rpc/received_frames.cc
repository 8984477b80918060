#include "server/rpc/received_frames.h"

#include <dlfcn.h>
#include <linux/tcp.h>  // has more counters than netinet/tcp.h
#include <netinet/in.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "server/intake/peer_name.h"
#include "server/intake/rare_log.h"
#include "server/rpc/frame_meter.h"

namespace slotwise {
namespace {

using Clock = FrameMeter::Clock;

// The connection that a descriptor is, or was last. gRPC reads a connection in one thread at a time, so
// nobody waits for the mutex. It orders the threads that take turns.
struct Connection {
  std::mutex mutex;
  std::optional<FrameMeter> meter;
  std::uint64_t cookie = 0;  // the kernel's name of the socket, never used again
};

// By descriptor. A connection's place is made when the descriptor's number is first used, and stays; its
// meter stays until the number is another connection's. (A read of 0 bytes is not always a connection's end:
// gRPC also calls recvmsg with no room.)
std::array<std::atomic<Connection*>, kMostMetered>& Connections() {
  static std::array<std::atomic<Connection*>, kMostMetered> connections{};
  return connections;
}

std::atomic<std::uint64_t> metered_bytes{0};

std::optional<std::uint64_t> CookieOf(int socket) {
  std::uint64_t cookie = 0;
  socklen_t size = sizeof(cookie);
  if (getsockopt(socket, SOL_SOCKET, SO_COOKIE, &cookie, &size) != 0) return std::nullopt;
  return cookie;
}

// Where the kernel does not count, replies pay for nothing.
std::uint64_t BytesTaken(int socket) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  return size >= offsetof(tcp_info, tcpi_bytes_acked) + sizeof(info.tcpi_bytes_acked) ? info.tcpi_bytes_acked
                                                                                      : 0;
}

std::string WhatWasPassed(FrameMeter::Bound bound) {
  switch (bound) {
    case FrameMeter::Bound::kHeaders:
      return "a call's headers have more than " + std::to_string(FrameMeter::kMostHeaderBytes) + " bytes";
    case FrameMeter::Bound::kFrames:
      return "it sent more frames without messages, or gave up more calls, than the " +
             std::to_string(static_cast<int>(FrameMeter::kFramesASecond)) +
             " frames a second that a connection may";
    case FrameMeter::Bound::kSharedFrames:
      break;
  }
  return "all connections sent more frames without messages, or gave up more calls, than the " +
         std::to_string(static_cast<int>(SharedFrames::kASecond)) + " frames a second that they may";
}

void LogCutOff(int socket, FrameMeter::Bound bound) {
  static RareLog log(std::chrono::minutes(1), 3);
  if (const auto held_back = log.Pass()) {
    spdlog::warn("cut off {}: {} ({} more since the last such line)", PeerName(socket), WhatWasPassed(bound),
                 *held_back);
  }
}

// Shows what was received to the connection's meter. Returns false if the connection shall end.
bool Read(int socket, Connection& connection, const msghdr& message, std::size_t received) {
  const std::lock_guard lock(connection.mutex);
  if (!connection.meter) return true;
  metered_bytes.fetch_add(received, std::memory_order_relaxed);
  const Clock::time_point now = Clock::now();
  for (std::size_t i = 0; received > 0 && i < message.msg_iovlen; ++i) {
    const iovec& piece = message.msg_iov[i];
    const std::size_t size = std::min(received, piece.iov_len);
    received -= size;
    const auto bound = connection.meter->Read({static_cast<const std::byte*>(piece.iov_base), size}, now);
    if (!bound) continue;
    if (CookieOf(socket) != connection.cookie) {  // another socket has the number by now
      connection.meter.reset();
      return true;
    }
    LogCutOff(socket, *bound);
    return false;
  }
  return true;
}

ssize_t ReceiveByLibrary(int socket, msghdr* message, int flags) {
#ifdef __SANITIZE_THREAD__
  // ThreadSanitizer looks away where gRPC's library calls recvmsg, but would not here.
  return syscall(SYS_recvmsg, socket, message, flags);
#else
  using Function = ssize_t (*)(int, msghdr*, int);
  static const auto receive = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "recvmsg"));
  if (receive == nullptr) std::abort();
  return receive(socket, message, flags);
#endif
}

}  // namespace

bool MeterFrames(int socket) {
  static SharedFrames shared(Clock::now());
  if (socket < 0 || socket >= kMostMetered) {
    errno = EMFILE;
    return false;
  }
  const auto cookie = CookieOf(socket);
  if (!cookie) return false;
  auto& place = Connections()[static_cast<std::size_t>(socket)];
  Connection* connection = place.load(std::memory_order_acquire);
  if (connection == nullptr) {
    auto fresh = std::make_unique<Connection>();
    if (place.compare_exchange_strong(connection, fresh.get())) connection = fresh.release();
  }
  const std::lock_guard lock(connection->mutex);
  connection->meter.emplace(
      shared, [socket] { return BytesTaken(socket); }, Clock::now());
  connection->cookie = *cookie;
  return true;
}

std::uint64_t MeteredBytes() { return metered_bytes.load(std::memory_order_relaxed); }

}  // namespace slotwise

// gRPC's library calls this one, because a program's functions come before the C library's.
extern "C" __attribute__((visibility("default"))) ssize_t recvmsg(int socket, msghdr* message, int flags) {
  using slotwise::Connection;
  const ssize_t received = slotwise::ReceiveByLibrary(socket, message, flags);
  if (flags != 0 || socket < 0 || socket >= slotwise::kMostMetered) return received;
  Connection* const connection =
      slotwise::Connections()[static_cast<std::size_t>(socket)].load(std::memory_order_acquire);
  if (connection == nullptr || received <= 0) return received;
  if (slotwise::Read(socket, *connection, *message, static_cast<std::size_t>(received))) return received;
  errno = ECONNRESET;
  return -1;
}
