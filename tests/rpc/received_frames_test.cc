// recvmsg shows the meter what a client's connection receives, and nothing else; a real server's connections
// are metered.
#include "server/rpc/received_frames.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "tests/rpc/rpc_server_fixture.h"

namespace slotwise {
namespace {

constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr std::string_view kEmptySettings{"\0\0\0\4\0\0\0\0\0", 9};

std::string Flood() {
  std::string bytes(kPreface);
  for (int i = 0; i < 10'000; ++i) bytes += kEmptySettings;
  return bytes;
}

class ReceivedFramesTest : public testing::Test {
 protected:
  ReceivedFramesTest() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets_.data()), 0); }
  ~ReceivedFramesTest() override {
    for (const int fd : sockets_) close(fd);
  }

  void Send(const std::string& bytes) {
    ASSERT_EQ(send(sockets_[1], bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  }

  // What recvmsg returns for all bytes that are there, in two pieces of memory; errno if it fails.
  ssize_t Receive(int flags = 0) {
    std::vector<char> memory(1 << 20);
    std::array<iovec, 2> pieces{iovec{memory.data(), 1003},
                                iovec{memory.data() + 1003, memory.size() - 1003}};
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = pieces.size();
    const ssize_t received = recvmsg(sockets_[0], &message, flags);
    return received < 0 ? -errno : received;
  }

  std::array<int, 2> sockets_{-1, -1};
};

TEST_F(ReceivedFramesTest, EndsAConnectionThatFloods) {
  ASSERT_TRUE(MeterFrames(sockets_[0]));
  Send(std::string(kPreface) + std::string(kEmptySettings));
  EXPECT_EQ(Receive(), static_cast<ssize_t>(kPreface.size() + kEmptySettings.size()));
  EXPECT_EQ(Receive(), -EAGAIN);
  Send(Flood().substr(kPreface.size()));
  EXPECT_EQ(Receive(), -ECONNRESET);
  Send("more");
  EXPECT_EQ(Receive(), -ECONNRESET);
}

TEST_F(ReceivedFramesTest, LeavesOtherSocketsAlone) {
  Send(Flood());
  EXPECT_EQ(Receive(), static_cast<ssize_t>(Flood().size()));
}

TEST_F(ReceivedFramesTest, LeavesASocketAloneThatHasAConnectionsOldNumber) {
  std::array<int, 2> old{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, old.data()), 0);
  ASSERT_TRUE(MeterFrames(old[0]));
  ASSERT_EQ(dup2(sockets_[0], old[0]), old[0]);
  close(sockets_[0]);
  sockets_[0] = old[0];
  close(old[1]);
  for (int i = 0; i < 3; ++i) {
    Send(Flood());
    EXPECT_EQ(Receive(), static_cast<ssize_t>(Flood().size()));
  }
}

TEST_F(ReceivedFramesTest, BeginsAnewWithAnotherConnectionOfTheSameNumber) {
  ASSERT_TRUE(MeterFrames(sockets_[0]));
  Send(Flood());
  EXPECT_EQ(Receive(), -ECONNRESET);
  const int number = sockets_[0];
  close(sockets_[0]);
  close(sockets_[1]);
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets_.data()), 0);
  ASSERT_EQ(sockets_[0], number);
  ASSERT_TRUE(MeterFrames(sockets_[0]));
  Send(std::string(kPreface));
  EXPECT_EQ(Receive(), static_cast<ssize_t>(kPreface.size()));
}

// gRPC's library does that.
TEST_F(ReceivedFramesTest, GoesOnAfterAReadThatHadNoRoom) {
  ASSERT_TRUE(MeterFrames(sockets_[0]));
  msghdr no_room{};
  EXPECT_LE(recvmsg(sockets_[0], &no_room, 0), 0);
  Send(Flood());
  EXPECT_EQ(Receive(), -ECONNRESET);
}

TEST_F(ReceivedFramesTest, DoesNotCountWhatIsOnlyLookedAt) {
  ASSERT_TRUE(MeterFrames(sockets_[0]));
  const std::uint64_t metered = MeteredBytes();
  Send(Flood());
  EXPECT_EQ(Receive(MSG_PEEK), static_cast<ssize_t>(Flood().size()));
  EXPECT_EQ(MeteredBytes(), metered);
}

TEST(MeterFrames, RefusesWhatIsNoSocket) {
  EXPECT_FALSE(MeterFrames(-1));
  EXPECT_FALSE(MeterFrames(kMostMetered));
  const int file = open("/dev/null", O_RDONLY);
  EXPECT_FALSE(MeterFrames(file));
  close(file);
}

using ServerOfMeteredConnections = RpcServerTest;

// gRPC's library reads through our recvmsg.
TEST_F(ServerOfMeteredConnections, CountsTheBytesOfACall) {
  OpenWithAds();
  v1::GetTopologyReply reply;
  ASSERT_TRUE(GetTopology(reply).ok());
  const std::uint64_t before = MeteredBytes();
  grpc::ClientContext context;
  v1::DescribeTableRequest request;
  request.set_table(std::string(100'000, 'x'));
  v1::DescribeTableReply described;
  EXPECT_FALSE(admin_->DescribeTable(&context, request, &described).ok());
  EXPECT_GE(MeteredBytes(), before + 100'000);
}

}  // namespace
}  // namespace slotwise
