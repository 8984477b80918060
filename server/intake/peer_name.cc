#include "server/intake/peer_name.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <string_view>

namespace slotwise {

std::string PeerName(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (getpeername(socket, any, &size) != 0) return "a connection";
  if (address.ss_family == AF_UNIX) {
    ucred peer{};
    size = sizeof(peer);
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return "a connection";
    return "unix:uid=" + std::to_string(peer.uid) + ",pid=" + std::to_string(peer.pid);
  }
  if (getnameinfo(any, size, host.data(), host.size(), port.data(), port.size(),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "a connection";
  }
  // As in gRPC, an IPv4 address at an IPv6 socket is named as IPv4.
  constexpr std::string_view kMapped = "::ffff:";
  const std::string_view name = host.data();
  if (address.ss_family == AF_INET) return "ipv4:" + std::string(name) + ":" + port.data();
  if (name.starts_with(kMapped))
    return "ipv4:" + std::string(name.substr(kMapped.size())) + ":" + port.data();
  return "ipv6:[" + std::string(name) + "]:" + port.data();
}

}  // namespace slotwise
