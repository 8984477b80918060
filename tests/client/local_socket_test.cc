// Tests which process a client accepts at a Unix socket, and what the client sends to it.
#include "client/cpp/local_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "client/cpp/data_link.h"
#include "tests/client/peer.h"

namespace slotwise::client {
namespace {

std::string Name(const char* of) {
  return std::string("slotwise-test-") + of + "-" + std::to_string(getpid());
}

TEST(LocalSocket, ServesWhereTheUsersProcessGreets) {
  const std::string name = Name("socket");
  EXPECT_FALSE(ServesLocally(name, geteuid())) << "no server listens";
  Peer peer(name);
  std::thread greets([&peer] { peer.Meet(); });
  EXPECT_TRUE(ServesLocally(name, geteuid()));
  greets.join();
  std::thread greets_otherwise([&peer] { peer.Meet(kDataVersion + 1); });
  EXPECT_FALSE(ServesLocally(name, geteuid())) << "it speaks another version";
  greets_otherwise.join();
  EXPECT_FALSE(ServesLocally(name, geteuid() + 1)) << "somebody else has taken the name";
  EXPECT_FALSE(ServesLocally("", geteuid()));
  EXPECT_FALSE(ServesLocally(std::string(200, 'x'), geteuid()));
}

// Somebody else who has taken the name greets as well, but is told nothing.
TEST(LocalSocket, SaysNothingToAnotherUsersProcess) {
  const std::string name = Name("other");
  Peer peer(name);
  EXPECT_FALSE(ServesLocally(name, geteuid() + 1));
  EXPECT_TRUE(peer.HearsNothing());
}

TEST(LocalSocket, DoesNotServeWhereTheGreetingEndsEarly) {
  const std::string name = Name("short");
  Peer peer(name);
  std::thread hangs_up([&peer] {
    peer.MeetHalf();
    peer.Hang();
  });
  EXPECT_FALSE(ServesLocally(name, geteuid()));
  hangs_up.join();
}

TEST(LocalSocket, HasTheLongestNameThatASocketMayHave) {
  const std::string name = Name("long") + "-" + std::string(sizeof(sockaddr_un::sun_path), 'x');
  const std::string longest = name.substr(0, sizeof(sockaddr_un::sun_path) - 1);
  Peer peer(longest);
  EXPECT_FALSE(ServesLocally(longest, geteuid()));
  EXPECT_FALSE(peer.HearsNothing()) << "it was greeted, though it did not greet";
  EXPECT_FALSE(ServesLocally(name.substr(0, sizeof(sockaddr_un::sun_path)), geteuid()));
}

// A process is known by its user: its group says nothing, and a socket without a process is no user's, though
// root's number is 0.
TEST(LocalSocket, KnowsAProcessByItsUser) {
  std::array<int, 2> ends{};
  const gid_t group = getegid();
  const auto other = static_cast<gid_t>(geteuid() + 4321);
  const bool is_other = setegid(other) == 0;  // which only root may do
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  ASSERT_EQ(setegid(group), 0);
  EXPECT_TRUE(IsUsers(ends[0], geteuid()));
  EXPECT_FALSE(IsUsers(ends[0], geteuid() + 1));
  EXPECT_FALSE(is_other && IsUsers(ends[0], other));
  for (const int end : ends) close(end);
  EXPECT_FALSE(IsUsers(ends[0], 0));
  EXPECT_FALSE(IsUsers(-1, 0));
}

// Who listens and does not greet is waited for, but not for long.
TEST(LocalSocket, DoesNotServeWhereNoServerGreets) {
  const std::string name = Name("silent");
  const Peer peer(name);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(ServesLocally(name, geteuid()));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

// The name of a server that is gone may be taken by anybody on the host, and its port, too.
TEST(LocalSocket, ALinkBringsNothingToAnotherUsersProcess) {
  const std::string name = Name("taken");
  Peer taken(name);
  Peer port;
  DataThreads threads(1);
  DataLink link(threads, RankAddress{.address = port.address(), .local = name, .only_user = geteuid() + 1});
  EXPECT_EQ(SendBy(link, std::make_shared<FakeExchange>()).outcome.get().code, StatusCode::kUnavailable);
  EXPECT_TRUE(taken.HearsNothing());
  EXPECT_TRUE(port.HearsNothing());
}

}  // namespace
}  // namespace slotwise::client
