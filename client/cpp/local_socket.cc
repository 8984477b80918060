#include "client/cpp/local_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <span>

#include "wire/data_version.h"

namespace slotwise::client {
namespace {

constexpr std::chrono::seconds kLimit{1};

class OwnedSocket {
 public:
  explicit OwnedSocket(int descriptor) : descriptor_(descriptor) {}
  ~OwnedSocket() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  OwnedSocket(const OwnedSocket&) = delete;
  OwnedSocket& operator=(const OwnedSocket&) = delete;

  int get() const { return descriptor_; }

 private:
  const int descriptor_;
};

// Returns whether the whole preface came before the time limit.
bool Hear(int socket, Preface& preface) {
  const auto end = std::chrono::steady_clock::now() + kLimit;
  for (std::size_t heard = 0; heard < preface.size();) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
    pollfd readable{.fd = socket, .events = POLLIN, .revents = 0};
    const int ready = left > 0 ? poll(&readable, 1, static_cast<int>(left)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const auto room = std::span(preface).subspan(heard);
    const ssize_t size = recv(socket, room.data(), room.size(), MSG_DONTWAIT);
    if (size < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (size <= 0) return false;
    heard += static_cast<std::size_t>(size);
  }
  return true;
}

}  // namespace

bool IsUsers(int socket, std::uint32_t user) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == user;
}

bool ServesLocally(const std::string& name, std::uint32_t user) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.empty() || name.size() + 1 > sizeof(address.sun_path)) return false;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const OwnedSocket made(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (made.get() < 0) return false;
  // A listening server accepts at once, so this never waits for a connection.
  if (connect(made.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) return false;
  if (!IsUsers(made.get(), user)) return false;
  Preface preface = MakePreface(kDataVersion);
  const auto sent = send(made.get(), preface.data(), preface.size(), MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(preface.size()) || !Hear(made.get(), preface)) return false;
  return VersionIn(preface) == kDataVersion;
}

}  // namespace slotwise::client
