#include "server/collective/socket.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstring>

namespace slotwise {
namespace {

// Returns the size of `to`, which becomes the address.
socklen_t Fill(const IpAddress& address, std::uint16_t port, sockaddr_storage& to) {
  to = {};
  if (address.family == 6) {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(to);
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    std::memcpy(&v6.sin6_addr, address.bytes.data(), sizeof(v6.sin6_addr));
    return sizeof(v6);
  }
  auto& v4 = reinterpret_cast<sockaddr_in&>(to);
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  std::memcpy(&v4.sin_addr, address.bytes.data(), sizeof(v4.sin_addr));
  return sizeof(v4);
}

Socket NewSocket(int family) { return Socket(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)); }

Socket ListenAt(const IpAddress& address, std::uint16_t& port) {
  sockaddr_storage where;
  socklen_t size = Fill(address, 0, where);
  Socket listening = NewSocket(where.ss_family);
  if (!listening) return {};
  auto* const any = reinterpret_cast<sockaddr*>(&where);
  const int no = 0;
  if (address.family == 6) setsockopt(listening.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
  if (bind(listening.fd(), any, size) != 0 || listen(listening.fd(), 8) != 0) return {};
  if (getsockname(listening.fd(), any, &size) != 0) return {};
  port = ntohs(address.family == 6 ? reinterpret_cast<sockaddr_in6&>(where).sin6_port
                                   : reinterpret_cast<sockaddr_in&>(where).sin_port);
  return listening;
}

}  // namespace

std::string IpAddress::Text() const {
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(family == 6 ? AF_INET6 : AF_INET, bytes.data(), text.data(), text.size());
  return text.data();
}

std::vector<IpAddress> AddressesOfThisHost(std::size_t most) {
  std::vector<IpAddress> addresses;
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return addresses;
  for (const ifaddrs* next = interfaces; next != nullptr && addresses.size() < most; next = next->ifa_next) {
    if (next->ifa_addr == nullptr || (next->ifa_flags & IFF_UP) == 0 ||
        (next->ifa_flags & IFF_LOOPBACK) != 0) {
      continue;
    }
    IpAddress address;
    if (next->ifa_addr->sa_family == AF_INET) {
      address.family = 4;
      std::memcpy(address.bytes.data(), &reinterpret_cast<const sockaddr_in*>(next->ifa_addr)->sin_addr, 4);
    } else if (next->ifa_addr->sa_family == AF_INET6) {
      const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(next->ifa_addr)->sin6_addr;
      if (IN6_IS_ADDR_LINKLOCAL(&v6)) continue;
      address.family = 6;
      std::memcpy(address.bytes.data(), &v6, 16);
    } else {
      continue;
    }
    addresses.push_back(address);
  }
  freeifaddrs(interfaces);
  return addresses;
}

Socket ListenAtAnyPort(bool loopback_only, std::uint16_t& port) {
  if (loopback_only) return ListenAt(kLoopback, port);
  Socket both = ListenAt({.family = 6}, port);  // takes connections of IPv4 too
  return both ? std::move(both) : ListenAt({.family = 4}, port);
}

Socket BeginToConnect(const IpAddress& address, std::uint16_t port) {
  sockaddr_storage where;
  const socklen_t size = Fill(address, port, where);
  Socket connecting = NewSocket(where.ss_family);
  if (!connecting) return {};
  if (connect(connecting.fd(), reinterpret_cast<sockaddr*>(&where), size) != 0 && errno != EINPROGRESS)
    return {};
  return connecting;
}

void SendWithoutDelay(const Socket& socket) {
  const int yes = 1;
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

}  // namespace slotwise
