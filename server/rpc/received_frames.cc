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

#ifdef __SANITIZE_THREAD__
// The linker's symbols for the begin and the end of the program's own code.
extern "C" const char __executable_start;
extern "C" const char etext;
#endif

namespace slotwise {
namespace {

using Clock = FrameMeter::Clock;

// The connections with one descriptor's number, one at a time. A connection's meter lives until the
// descriptor is closed, or the peer has ended the connection. gRPC reads a connection in one thread at a time
// and writes in one, so threads seldom wait for the mutex. The mutex is held while bytes are sent, so the
// meter knows that a call has ended before the client does. A thread that holds the mutex closes and logs
// nothing.
struct Connection {
  std::mutex mutex;
  std::optional<FrameMeter> meter;
};

// By descriptor. A slot is made when a connection with the number is first metered, and then kept.
std::array<std::atomic<Connection*>, kMostMetered>& Connections() {
  static std::array<std::atomic<Connection*>, kMostMetered> connections{};
  return connections;
}

std::atomic<std::uint64_t> metered_bytes{0};
std::atomic<pid_t> metering_process{0};  // this process, once a connection was metered
std::atomic<std::uint64_t> most_calls_of_connection{256};

SharedFrames& AllFrames() {
  static SharedFrames shared(Clock::now());
  return shared;
}

SharedCalls& AllCalls() {
  static SharedCalls shared;
  return shared;
}

// If the kernel does not count, replies pay for nothing.
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
    case FrameMeter::Bound::kCalls:
      return "it opened more calls than the " + std::to_string(most_calls_of_connection) +
             " that limits.max_calls_per_connection allows";
    case FrameMeter::Bound::kSharedCalls:
      return "it opened more calls than are left for it of the " + std::to_string(AllCalls().most()) +
             " that limits.max_calls allows all connections";
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

// Returns the encrypted bytes of a connection. No other bytes come through its SSL object, because gRPC keeps
// pairs of buffers between SSL objects and sockets.
std::uint64_t BytesEncrypted(SSL* ssl) { return BIO_number_written(SSL_get_wbio(ssl)); }

// A TLS connection. It has no mutex: OpenSSL lets one thread at a time use a connection, and gRPC locks for
// that.
struct TlsConnection {
  explicit TlsConnection(SSL* ssl)
      : meter(
            AllFrames(), AllCalls(), most_calls_of_connection, [ssl] { return BytesEncrypted(ssl); },
            Clock::now()) {}

  FrameMeter meter;
};

void FreeConnection(void*, void* connection, CRYPTO_EX_DATA*, int, long, void*) {
  delete static_cast<TlsConnection*>(connection);
}

// Returns whether the connection resumes an earlier one's session, and the client's certificate, which was
// checked then, has expired since.
bool ResumesWithExpiredCertificate(SSL* ssl) {
  if (SSL_session_reused(ssl) == 0) return false;
  const X509* const certificate = SSL_SESSION_get0_peer(SSL_get0_session(ssl));
  return certificate != nullptr && X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0;
}

// Returns a TLS connection, which is made with the first decrypted or encrypted bytes, and ends with the SSL
// object. Null: the connection must end.
TlsConnection* ConnectionOf(SSL* ssl) {
  static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, FreeConnection);
  if (auto* const connection = static_cast<TlsConnection*>(SSL_get_ex_data(ssl, index))) return connection;
  if (ResumesWithExpiredCertificate(ssl)) return nullptr;
  auto made = std::make_unique<TlsConnection>(ssl);
  return SSL_set_ex_data(ssl, index, made.get()) == 1 ? made.release() : nullptr;
}

// Returns the function that the program would call without ours.
template <class Function>
Function OfLibrary(const char* name) {
  void* const function = dlsym(RTLD_NEXT, name);
  if (function == nullptr) std::abort();
  return reinterpret_cast<Function>(function);
}

int ReadByLibrary(SSL* ssl, void* to, int most) {
  static const auto read = OfLibrary<decltype(&SSL_read)>("SSL_read");
  return read(ssl, to, most);
}

int WriteByLibrary(SSL* ssl, const void* from, int size) {
  static const auto write = OfLibrary<decltype(&SSL_write)>("SSL_write");
  return write(ssl, from, size);
}

// Shows decrypted bytes to the connection's meter. Returns false if the connection must end.
bool ReadDecrypted(SSL* ssl, std::span<const std::byte> bytes) {
  TlsConnection* const connection = ConnectionOf(ssl);
  if (connection == nullptr) return false;
  metered_bytes.fetch_add(bytes.size(), std::memory_order_relaxed);
  const auto bound = connection->meter.Read(bytes, Clock::now());
  if (bound) LogCutOff("a connection by TLS", *bound);
  return !bound;
}

// Shows bytes that will be encrypted to the connection's meter.
void ReadEncrypted(SSL* ssl, std::span<const std::byte> bytes) {
  if (TlsConnection* const connection = ConnectionOf(ssl)) connection->meter.ReadSent(bytes);
}

// Calls `take` for each piece of the first `size` bytes of a message, until it returns false.
template <class Take>
void ForEachPiece(const msghdr& message, std::size_t size, Take take) {
  for (std::size_t i = 0; size > 0 && i < message.msg_iovlen; ++i) {
    const iovec& piece = message.msg_iov[i];
    const std::size_t bytes = std::min(size, piece.iov_len);
    size -= bytes;
    if (!take(std::span(static_cast<const std::byte*>(piece.iov_base), bytes))) return;
  }
}

// Shows received bytes to the connection's meter. Returns false if the connection must end.
bool Read(int socket, Connection& connection, const msghdr& message, std::size_t received) {
  std::optional<FrameMeter::Bound> bound;
  {
    const std::lock_guard lock(connection.mutex);
    if (!connection.meter) return true;
    metered_bytes.fetch_add(received, std::memory_order_relaxed);
    const Clock::time_point now = Clock::now();
    ForEachPiece(message, received, [&](std::span<const std::byte> bytes) {
      bound = connection.meter->Read(bytes, now);
      return !bound;
    });
  }
  if (bound) LogCutOff(PeerName(socket), *bound);
  return !bound;
}

// Called when the connection has ended, and gRPC ends its calls.
void End(Connection& connection) {
  const std::lock_guard lock(connection.mutex);
  connection.meter.reset();
}

bool HasRoom(const msghdr& message) {
  for (std::size_t i = 0; i < message.msg_iovlen; ++i) {
    if (message.msg_iov[i].iov_len > 0) return true;
  }
  return false;
}

Connection* Find(int socket) {
  if (socket < 0 || socket >= kMostMetered) return nullptr;
  return Connections()[static_cast<std::size_t>(socket)].load(std::memory_order_acquire);
}

ssize_t ReceiveByLibrary(int socket, msghdr* message, int flags) {
#ifdef __SANITIZE_THREAD__
  // ThreadSanitizer ignores gRPC's own calls of recvmsg, but would not ignore this one.
  return syscall(SYS_recvmsg, socket, message, flags);
#else
  static const auto receive = OfLibrary<decltype(&recvmsg)>("recvmsg");
  return receive(socket, message, flags);
#endif
}

ssize_t SendByLibrary(int socket, const msghdr* message, int flags) {
#ifdef __SANITIZE_THREAD__
  return syscall(SYS_sendmsg, socket, message, flags);
#else
  static const auto send = OfLibrary<decltype(&sendmsg)>("sendmsg");
  return send(socket, message, flags);
#endif
}

int CloseByLibrary(int descriptor, [[maybe_unused]] const void* caller) {
#ifdef __SANITIZE_THREAD__
  // ThreadSanitizer ignores gRPC's own calls of close, but would not ignore this one. It must see our own
  // code's calls.
  if (caller < &__executable_start || caller >= &etext) {
    return static_cast<int>(syscall(SYS_close, descriptor));
  }
#endif
  static const auto close_it = OfLibrary<decltype(&close)>("close");
  return close_it(descriptor);
}

// Ends the meter of a descriptor that is about to be closed, while no other connection can have its number. A
// child process that closes descriptors before it runs another program closes its own copies, though it may
// share our memory (vfork); in a copy of our memory (fork), a mutex may be locked for ever.
void EndIfMetered(int descriptor) {
  Connection* const connection = Find(descriptor);
  if (connection != nullptr && metering_process == getpid()) End(*connection);
}

// Sends bytes, and shows the sent ones to the connection's meter.
ssize_t Send(int socket, Connection& connection, const msghdr& message, int flags) {
  std::unique_lock lock(connection.mutex);
  if (!connection.meter) {
    lock.unlock();  // another socket may have the number by now, and block
    return SendByLibrary(socket, &message, flags);
  }
  const ssize_t sent = SendByLibrary(socket, &message, flags);
  if (sent <= 0) return sent;
  ForEachPiece(message, static_cast<std::size_t>(sent), [&](std::span<const std::byte> bytes) {
    connection.meter->ReadSent(bytes);
    return true;
  });
  return sent;
}

}  // namespace

void LimitOpenCalls(std::uint64_t of_connection, std::uint64_t of_all, std::uint64_t connections) {
  most_calls_of_connection = of_connection;
  AllCalls().Limit(of_all, connections);
}

bool MeterFrames(int socket) {
  if (socket < 0 || socket >= kMostMetered) return false;
  metering_process = getpid();
  auto& place = Connections()[static_cast<std::size_t>(socket)];
  Connection* connection = place.load(std::memory_order_acquire);
  if (connection == nullptr) {
    auto fresh = std::make_unique<Connection>();
    if (place.compare_exchange_strong(connection, fresh.get())) connection = fresh.release();
  }
  const std::lock_guard lock(connection->mutex);
  connection->meter.emplace(
      AllFrames(), AllCalls(), most_calls_of_connection, [socket] { return BytesTaken(socket); },
      Clock::now());
  return true;
}

std::uint64_t MeteredBytes() { return metered_bytes.load(std::memory_order_relaxed); }
std::uint64_t OpenMeteredCalls() { return AllCalls().open(); }

}  // namespace slotwise

// gRPC's library calls these, because a program's functions take precedence over the C library's.
extern "C" __attribute__((visibility("default"))) ssize_t recvmsg(int socket, msghdr* message, int flags) {
  using slotwise::Connection;
  const ssize_t received = slotwise::ReceiveByLibrary(socket, message, flags);
  Connection* const connection = slotwise::Find(socket);
  if (flags != 0 || connection == nullptr) return received;
  if (received > 0) {
    if (slotwise::Read(socket, *connection, *message, static_cast<std::size_t>(received))) return received;
    errno = ECONNRESET;
    return -1;
  }
  const int error = received < 0 ? errno : 0;
  // gRPC also calls recvmsg without buffers, and then 0 bytes do not mean the connection's end.
  const bool goes_on = error == EAGAIN || error == EINTR || (received == 0 && !slotwise::HasRoom(*message));
  if (!goes_on) slotwise::End(*connection);
  errno = error;
  return received;
}

extern "C" __attribute__((visibility("default"))) ssize_t sendmsg(int socket, const msghdr* message,
                                                                  int flags) {
  slotwise::Connection* const connection = slotwise::Find(socket);
  return connection == nullptr ? slotwise::SendByLibrary(socket, message, flags)
                               : slotwise::Send(socket, *connection, *message, flags);
}

// Code that closes a file, a pipe or another socket calls this, too; it then does almost nothing.
extern "C" __attribute__((visibility("default"))) int close(int descriptor) {
  slotwise::EndIfMetered(descriptor);
  return slotwise::CloseByLibrary(descriptor, __builtin_return_address(0));
}

// gRPC calls these to decrypt and to encrypt. An error that OpenSSL did not make ends the connection like one
// of OpenSSL's.
extern "C" __attribute__((visibility("default"))) int SSL_read(SSL* ssl, void* to, int most) {
  const int size = slotwise::ReadByLibrary(ssl, to, most);
  if (size <= 0 || SSL_is_server(ssl) == 0) return size;
  if (slotwise::ReadDecrypted(ssl, {static_cast<const std::byte*>(to), static_cast<std::size_t>(size)})) {
    return size;
  }
  ERR_raise(ERR_LIB_USER, ERR_R_PASSED_INVALID_ARGUMENT);
  return -1;
}

extern "C" __attribute__((visibility("default"))) int SSL_write(SSL* ssl, const void* from, int size) {
  const int written = slotwise::WriteByLibrary(ssl, from, size);
  if (written > 0 && SSL_is_server(ssl) != 0) {
    slotwise::ReadEncrypted(ssl, {static_cast<const std::byte*>(from), static_cast<std::size_t>(written)});
  }
  return written;
}
