// recvmsg shows the meter what a client's connection receives, and nothing else; a real server's connections
// are metered.
#include "server/rpc/received_frames.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
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

std::string HeadersOf(int calls) {
  std::string bytes(kPreface);
  for (int call = 0; call < calls; ++call) {
    bytes += std::string("\0\0\1\1\4\0\0", 7) + static_cast<char>(call >> 7) +
             static_cast<char>(call << 1 | 1) + 'x';
  }
  return bytes;
}

TEST_F(ReceivedFramesTest, EndsAConnectionThatOpensTooManyCalls) {
  ASSERT_TRUE(MeterFrames(sockets_[0]));
  Send(HeadersOf(256));
  EXPECT_EQ(Receive(), static_cast<ssize_t>(HeadersOf(256).size()));
  EXPECT_EQ(OpenMeteredCalls(), 256u);
  Send(HeadersOf(257).substr(HeadersOf(256).size()));
  EXPECT_EQ(Receive(), -ECONNRESET);
  EXPECT_EQ(OpenMeteredCalls(), 0u);
}

TEST_F(ReceivedFramesTest, SeesCallsEndInWhatIsSent) {
  ASSERT_TRUE(MeterFrames(sockets_[0]));
  Send(HeadersOf(3));
  Receive();
  std::string reset("\0\0\4\3\0\0\0\0\3none", 13);
  iovec piece{reset.data(), reset.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  ASSERT_EQ(sendmsg(sockets_[0], &message, 0), static_cast<ssize_t>(reset.size()));
  EXPECT_EQ(OpenMeteredCalls(), 2u);
}

TEST_F(ReceivedFramesTest, HasNoOpenCallsOfConnectionsThatAreGone) {
  ASSERT_TRUE(MeterFrames(sockets_[0]));
  Send(HeadersOf(100));
  Receive();
  ASSERT_EQ(OpenMeteredCalls(), 100u);
  shutdown(sockets_[1], SHUT_WR);
  EXPECT_EQ(Receive(), 0);
  EXPECT_EQ(OpenMeteredCalls(), 0u) << "its peer has ended it";
}

TEST_F(ReceivedFramesTest, ForgetsAConnectionWhenAnotherHasItsNumber) {
  ASSERT_TRUE(MeterFrames(sockets_[0]));
  Send(HeadersOf(100));
  Receive();
  ForgetMetered(sockets_[0]);
  EXPECT_EQ(OpenMeteredCalls(), 0u);
  Send(Flood());
  EXPECT_EQ(Receive(), static_cast<ssize_t>(Flood().size())) << "it is not metered";
}

TEST_F(ReceivedFramesTest, LooksForConnectionsThatAreGoneWhereThereIsNoRoom) {
  LimitOpenCalls(100, 150);
  std::array<int, 2> gone{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, gone.data()), 0);
  ASSERT_TRUE(MeterFrames(gone[0]));
  std::swap(gone, sockets_);
  Send(HeadersOf(70));
  Receive();
  std::swap(gone, sockets_);
  for (const int fd : gone) close(fd);  // nobody has read it to its end
  EXPECT_EQ(OpenMeteredCalls(), 70u);
  ASSERT_TRUE(MeterFrames(sockets_[0]));
  Send(HeadersOf(60));
  EXPECT_EQ(Receive(), static_cast<ssize_t>(HeadersOf(60).size()));
  EXPECT_EQ(OpenMeteredCalls(), 60u);
  LimitOpenCalls(256, 16'384);
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

// gRPC's library sends through our sendmsg.
TEST_F(ServerOfMeteredConnections, SeesThatCallsEnd) {
  OpenWithAds();
  const std::uint64_t before = OpenMeteredCalls();
  for (int i = 0; i < 1000; ++i) {
    v1::GetTopologyReply reply;
    ASSERT_TRUE(GetTopology(reply).ok()) << i;
  }
  // The last reply may come before its sendmsg has returned.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (OpenMeteredCalls() != before && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_EQ(OpenMeteredCalls(), before);
}

}  // namespace
}  // namespace slotwise
