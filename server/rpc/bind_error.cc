#include "server/rpc/bind_error.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

namespace slotwise {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// Returns 0, or the errno of the call that failed.
int TryListen(const addrinfo& address) {
  const int socket_fd = socket(address.ai_family, SOCK_STREAM, 0);
  if (socket_fd < 0) return errno;
  const int yes = 1;
  setsockopt(socket_fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  int error = 0;
  if (bind(socket_fd, address.ai_addr, address.ai_addrlen) != 0 || listen(socket_fd, 1) != 0) error = errno;
  close(socket_fd);
  return error;
}

}  // namespace

std::string BindError(const std::string& host, std::uint16_t port) {
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const std::string name = bracketed ? host.substr(1, host.size() - 2) : host;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &found); error != 0) {
    return gai_strerror(error);
  }
  const Addresses addresses(found, &freeaddrinfo);
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    if (const int error = TryListen(*address); error != 0) return std::strerror(error);
  }
  return "gRPC refused the address";
}

}  // namespace slotwise
