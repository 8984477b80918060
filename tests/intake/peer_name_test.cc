#include "server/intake/peer_name.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>

namespace slotwise {
namespace {

TEST(PeerName, NamesAPeerOfThisHostByItsProcess) {
  std::array<int, 2> sockets{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets.data()), 0);
  EXPECT_EQ(PeerName(sockets[0]),
            "unix:uid=" + std::to_string(getuid()) + ",pid=" + std::to_string(getpid()));
  close(sockets[0]);
  close(sockets[1]);
  EXPECT_EQ(PeerName(sockets[0]), "a connection");
}

}  // namespace
}  // namespace slotwise
