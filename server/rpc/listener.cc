#include "server/rpc/listener.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <system_error>
#include <utility>

namespace slotwise {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// The descriptors that are reserved for the rank's own work: other ranks, devices, files.
constexpr rlim_t kForOwnWork = 256;
// The pause after an accept that failed for a reason that may last.
constexpr int kPauseMs = 20;

int Checked(int fd, const char* call) {
  if (fd < 0) throw std::system_error(errno, std::generic_category(), call);
  return fd;
}

int SpareDescriptor() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

// Returns how many descriptors this process may open, after raising its limit as far as the system allows.
rlim_t RaiseFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

std::string WithoutBrackets(const std::string& host) {
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return bracketed ? host.substr(1, host.size() - 2) : host;
}

std::uint16_t PortOf(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

void SetPort(sockaddr_storage& address, std::uint16_t port) {
  if (address.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(address).sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in&>(address).sin_port = htons(port);
  }
}

// Returns a socket that listens at the address, and sets the address's port to the one that the system chose;
// -1, with errno, if that fails.
int ListenAt(sockaddr_storage& address, socklen_t size) {
  const int fd = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const int yes = 1;
  const int no = 0;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));  // connections inherit this
  if (address.ss_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (bind(fd, any, size) == 0 && listen(fd, SOMAXCONN) == 0 && getsockname(fd, any, &size) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

}  // namespace

Result<std::unique_ptr<Listener>> Listener::Bind(const std::string& host, std::uint16_t port,
                                                 std::uint32_t max_connections) {
  std::unique_ptr<Listener> listener(new Listener(max_connections));
  if (Status status = listener->Open(host, port); !status.ok()) return status;
  return listener;
}

Listener::Listener(std::uint32_t max_connections)
    : max_connections_(max_connections), refusals_(std::chrono::minutes(1)) {}

Listener::~Listener() {
  Stop();
  for (const int fd : {spare_, stop_}) {
    if (fd >= 0) close(fd);
  }
}

Status Listener::Open(const std::string& host, std::uint16_t port) {
  const auto cannot = [&](const std::string& why) {
    return FailedPrecondition("cannot listen at " + host + ":" + std::to_string(port) + ": " + why);
  };
  std::string name = WithoutBrackets(host);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const std::string service = std::to_string(port);
  // One IPv6 socket accepts connections of both kinds, if the machine has IPv6.
  bool all = false;
  if (name == "0.0.0.0" && getaddrinfo("::", service.c_str(), &hints, &found) == 0) {
    const Addresses any(std::exchange(found, nullptr), &freeaddrinfo);
    sockaddr_storage address{};
    std::memcpy(&address, any->ai_addr, any->ai_addrlen);
    if (const int fd = ListenAt(address, any->ai_addrlen); fd >= 0) {
      listening_.push_back(fd);
      port_ = PortOf(address);
      all = true;
    }
  }
  if (!all) {
    if (const int error = getaddrinfo(name.c_str(), service.c_str(), &hints, &found); error != 0) {
      return cannot(gai_strerror(error));
    }
    const Addresses addresses(found, &freeaddrinfo);
    for (const addrinfo* next = found; next != nullptr; next = next->ai_next) {
      sockaddr_storage address{};
      std::memcpy(&address, next->ai_addr, next->ai_addrlen);
      if (port_ != 0) SetPort(address, port_);
      const int fd = ListenAt(address, next->ai_addrlen);
      if (fd < 0) return cannot(std::strerror(errno));
      listening_.push_back(fd);
      port_ = PortOf(address);
    }
  }
  stop_ = Checked(eventfd(0, EFD_CLOEXEC), "eventfd");
  spare_ = Checked(SpareDescriptor(), "open /dev/null");
  return {};
}

Status Listener::ListenLocally(const std::string& name) {
  const auto cannot = [&](const std::string& why) {
    return FailedPrecondition("cannot listen at the Unix socket @" + name + ": " + why);
  };
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.empty() || name.size() + 1 > sizeof(address.sun_path)) return cannot("no such name");
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return cannot(std::strerror(errno));
  listening_.push_back(fd);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), size) == 0 && listen(fd, SOMAXCONN) == 0) {
    return {};
  }
  return cannot(std::strerror(errno));
}

void Listener::Start(Take take) {
  take_ = std::move(take);
  const rlim_t files = RaiseFileLimit();
  const auto connections =
      std::min<rlim_t>(max_connections_, files > 2 * kForOwnWork ? files - kForOwnWork : files / 2);
  if (connections < max_connections_) {
    spdlog::warn("limits.max_connections is {}, but this process may open {} files: at most {} connections",
                 max_connections_, files, connections);
    max_connections_ = static_cast<std::uint32_t>(connections);
  }
  // A new descriptor gets the lowest free number, so its number bounds the open descriptors.
  most_fd_ = spare_ + 1 + static_cast<int>(connections);
  thread_ = std::thread([this] { Run(); });
}

void Listener::Stop() {
  if (thread_.joinable()) {
    eventfd_write(stop_, 1);
    thread_.join();
  }
  for (const int fd : std::exchange(listening_, {})) close(fd);
}

void Listener::Run() {
  std::vector<pollfd> sockets{{stop_, POLLIN, 0}};
  for (const int fd : listening_) sockets.push_back({fd, POLLIN, 0});
  for (;;) {
    if (poll(sockets.data(), sockets.size(), -1) < 0) continue;  // interrupted, for example by a debugger
    if (sockets.front().revents != 0) return;
    for (const pollfd& socket : sockets) {
      if (socket.revents != 0) AcceptAll(socket.fd);
    }
  }
}

void Listener::AcceptAll(int listening) {
  for (;;) {
    const int connection = accept4(listening, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (connection >= most_fd_) {
      close(connection);
      LogRefusal(std::to_string(max_connections_) + " are open, the most that limits.max_connections allows");
      continue;
    }
    if (connection >= 0) {
      take_(connection);
      continue;
    }
    switch (errno) {
      case EAGAIN:
        return;
      case EMFILE:
      case ENFILE:
        RefuseWithSpare(listening);
        return;
      case EINTR:
      case ECONNABORTED:
      case EPROTO:
        continue;
      default:  // a network error or lack of memory, which may pass
        LogRefusal(std::strerror(errno));
        poll(nullptr, 0, kPauseMs);
        return;
    }
  }
}

// A waiting connection would be offered again and again. Releasing the spare descriptor lets it be closed.
void Listener::RefuseWithSpare(int listening) {
  LogRefusal("this process, or the machine, has no file descriptor left");
  if (spare_ >= 0) close(spare_);
  const int connection = accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
  if (connection >= 0) close(connection);
  spare_ = SpareDescriptor();
  if (spare_ < 0 || connection < 0) poll(nullptr, 0, kPauseMs);
}

void Listener::LogRefusal(const std::string& why) {
  const auto held_back = refusals_.Pass();
  if (held_back) spdlog::warn("refused a connection: {} ({} more since the last such line)", why, *held_back);
}

}  // namespace slotwise
