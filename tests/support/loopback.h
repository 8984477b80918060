// Listens at a port of this host that the system chooses.
// Thread-safety: a free function.
#ifndef SLOTWISE_TESTS_SUPPORT_LOOPBACK_H_
#define SLOTWISE_TESTS_SUPPORT_LOOPBACK_H_

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

namespace slotwise::test {

// Lets an IPv4 socket listen, and returns its address, host:port.
inline std::string ListenAtLoopback(int socket) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  EXPECT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), size), 0);
  EXPECT_EQ(::listen(socket, 4), 0);
  EXPECT_EQ(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size), 0);
  return "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
}

}  // namespace slotwise::test

#endif  // SLOTWISE_TESTS_SUPPORT_LOOPBACK_H_
