#include "server/rpc/received_frames.h"

#include <dlfcn.h>
#include <linux/tcp.h>  // has more counters than netinet/tcp.h
#include <netinet/in.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
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

SharedFrames& AllFrames() {
  static SharedFrames shared(Clock::now());
  return shared;
}

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

void LogCutOff(const std::string& peer, FrameMeter::Bound bound) {
  static RareLog log(std::chrono::minutes(1), 3);
  if (const auto held_back = log.Pass()) {
    spdlog::warn("cut off {}: {} ({} more since the last such line)", peer, WhatWasPassed(bound), *held_back);
  }
}

// Nobody else's bytes come through our SSL objects: gRPC's library keeps pairs of buffers between them and
// sockets.
std::uint64_t BytesEncrypted(SSL* ssl) { return BIO_number_written(SSL_get_wbio(ssl)); }

void FreeMeter(void*, void* meter, CRYPTO_EX_DATA*, int, long, void*) {
  delete static_cast<FrameMeter*>(meter);
}

// Returns whether the connection goes on with an earlier one's session, and the client's certificate, which
// was checked then, has expired since.
bool ResumesWithExpiredCertificate(SSL* ssl) {
  if (SSL_session_reused(ssl) == 0) return false;
  const X509* const certificate = SSL_SESSION_get0_peer(SSL_get0_session(ssl));
  return certificate != nullptr && X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0;
}

// Returns the meter of a connection by TLS, which is made with the first bytes that are decrypted, and ends
// with the connection. Null: the connection shall end.
FrameMeter* MeterOf(SSL* ssl) {
  static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, FreeMeter);
  if (auto* const meter = static_cast<FrameMeter*>(SSL_get_ex_data(ssl, index))) return meter;
  if (ResumesWithExpiredCertificate(ssl)) return nullptr;
  auto made = std::make_unique<FrameMeter>(
      AllFrames(), [ssl] { return BytesEncrypted(ssl); }, Clock::now());
  return SSL_set_ex_data(ssl, index, made.get()) == 1 ? made.release() : nullptr;
}

int ReadByLibrary(SSL* ssl, void* to, int most) {
  using Function = int (*)(SSL*, void*, int);
  static const auto read = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "SSL_read"));
  if (read == nullptr) std::abort();
  return read(ssl, to, most);
}

// Shows what was decrypted to the connection's meter. Returns false if the connection shall end.
bool ReadDecrypted(SSL* ssl, std::span<const std::byte> bytes) {
  FrameMeter* const meter = MeterOf(ssl);
  if (meter == nullptr) return false;
  metered_bytes.fetch_add(bytes.size(), std::memory_order_relaxed);
  const auto bound = meter->Read(bytes, Clock::now());
  if (bound) LogCutOff("a connection by TLS", *bound);
  return !bound;
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
    LogCutOff(PeerName(socket), *bound);
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
      AllFrames(), [socket] { return BytesTaken(socket); }, Clock::now());
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

// What gRPC's library decrypts comes through this one. An error that OpenSSL did not make ends the connection
// as one of OpenSSL's does.
extern "C" __attribute__((visibility("default"))) int SSL_read(SSL* ssl, void* to, int most) {
  const int size = slotwise::ReadByLibrary(ssl, to, most);
  if (size <= 0 || SSL_is_server(ssl) == 0) return size;
  if (slotwise::ReadDecrypted(ssl, {static_cast<const std::byte*>(to), static_cast<std::size_t>(size)})) {
    return size;
  }
  ERR_raise(ERR_LIB_USER, ERR_R_PASSED_INVALID_ARGUMENT);
  return -1;
}
