// Socket owns a file descriptor. The functions are the few of TCP that the heartbeat needs; no call blocks.
// Thread-safety: a Socket belongs to one thread at a time; the functions are free.
#ifndef SLOTWISE_SERVER_COLLECTIVE_SOCKET_H_
#define SLOTWISE_SERVER_COLLECTIVE_SOCKET_H_

#include <unistd.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace slotwise {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }

  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// An IPv4 or IPv6 address, in network order, made of bytes alone.
struct IpAddress {
  std::uint8_t family = 0;  // 4, 6, or 0: none
  std::array<std::uint8_t, 16> bytes{};

  std::string Text() const;
};

// Returns the addresses of this host that other hosts may reach, at most `most`: no loopback and no
// link-local addresses.
std::vector<IpAddress> AddressesOfThisHost(std::size_t most);

inline constexpr IpAddress kLoopback{4, {127, 0, 0, 1}};

// Returns a socket that listens at any free port, at `kLoopback` or at all addresses, and sets `port` to the
// port. Returns none if the system has none, and errno says why.
Socket ListenAtAnyPort(bool loopback_only, std::uint16_t& port);

// Returns a socket that is connecting, or none.
Socket BeginToConnect(const IpAddress& address, std::uint16_t port);

// Makes small messages leave at once.
void SendWithoutDelay(const Socket& socket);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_COLLECTIVE_SOCKET_H_
