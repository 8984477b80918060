// recvmsg shows the meter the bytes that a client's connection receives, and no others, until close. A real
// server's connections are metered.
#include "server/rpc/received_frames.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
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

std::string HeadersOf(int calls) {
  std::string bytes(kPreface);
  for (int call = 0; call < calls; ++call) {
    bytes += std::string("\0\0\1\1\4\0\0", 7) + static_cast<char>(call >> 7) +
             static_cast<char>(call << 1 | 1) + 'x';
  }
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

  // Closes both, whose ends were not read, and makes two others with the same numbers.
  void Renew() {
    const std::array<int, 2> old = sockets_;
    for (const int fd : old) ASSERT_EQ(close(fd), 0);
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets_.data()), 0);
    ASSERT_EQ(sockets_, old);
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
  ASSERT_TRUE(MeterFrames(sockets_[0]));
  Send(HeadersOf(100));
  Receive();
  Renew();
  for (int i = 0; i < 3; ++i) {
    Send(Flood());
    EXPECT_EQ(Receive(), static_cast<ssize_t>(Flood().size()));
  }
}

TEST_F(ReceivedFramesTest, BeginsAnewWithAnotherConnectionOfTheSameNumber) {
  ASSERT_TRUE(MeterFrames(sockets_[0]));
  Send(Flood());
  EXPECT_EQ(Receive(), -ECONNRESET);
  Renew();
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

// Each has another number than the one before, and comes at once.
TEST_F(ReceivedFramesTest, HasRoomForTheCallsOfConnectionsThatAreClosed) {
  LimitOpenCalls(100, 150, 1);
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(MeterFrames(sockets_[0]));
    Send(HeadersOf(70));
    EXPECT_EQ(Receive(), static_cast<ssize_t>(HeadersOf(70).size())) << i;
    EXPECT_EQ(OpenMeteredCalls(), 70u);
    const std::array<int, 2> old = sockets_;
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets_.data()), 0);
    for (const int fd : old) ASSERT_EQ(close(fd), 0);  // its end was not read
    EXPECT_EQ(OpenMeteredCalls(), 0u);
  }
  LimitOpenCalls(256, 16'384, 4096);
}

// What a child closes is its own, also one that still runs in its parent's memory, as after vfork.
TEST_F(ReceivedFramesTest, GoesOnWhenAChildProcessClosesItsDescriptors) {
  ASSERT_TRUE(MeterFrames(sockets_[0]));
  Send(HeadersOf(100));
  Receive();
  // ThreadSanitizer makes a fork of this.
  const pid_t child = vfork();  // NOLINT(bugprone-unsafe-functions): vfork is what is tested
  if (child == 0) _exit(close(sockets_[0]));
  ASSERT_GT(child, 0);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(OpenMeteredCalls(), 100u);
  Send(Flood().substr(kPreface.size()));
  EXPECT_EQ(Receive(), -ECONNRESET);
}

TEST(Close, SaysWhatTheLibrarySays) {
  EXPECT_EQ(close(-1), -1);
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(close(kMostMetered), -1);
  EXPECT_EQ(errno, EBADF);
  const int file = open("/dev/null", O_RDONLY);
  EXPECT_EQ(close(file), 0);
  EXPECT_EQ(fcntl(file, F_GETFD), -1) << "it is closed";
}

TEST_F(ReceivedFramesTest, DoesNotCountWhatIsOnlyLookedAt) {
  ASSERT_TRUE(MeterFrames(sockets_[0]));
  const std::uint64_t metered = MeteredBytes();
  Send(Flood());
  EXPECT_EQ(Receive(MSG_PEEK), static_cast<ssize_t>(Flood().size()));
  EXPECT_EQ(MeteredBytes(), metered);
}

TEST(MeterFrames, RefusesNumbersBeyondItsMost) {
  EXPECT_FALSE(MeterFrames(-1));
  EXPECT_FALSE(MeterFrames(kMostMetered));
}

std::string HeadersThatGoOn(char stream) { return std::string("\0\0\0\1\0\0\0\0", 8) + stream; }

class ServerOfMeteredConnections : public RpcServerTest {
 protected:
  static bool OpenCallsBecome(std::uint64_t calls) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (OpenMeteredCalls() != calls && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    return OpenMeteredCalls() == calls;
  }
};

// gRPC's library reads through our recvmsg.
TEST_F(ServerOfMeteredConnections, CountsTheBytesOfACall) {
  OpenWithAds();
  v1::GetTopologyReply reply;
  ASSERT_TRUE(GetTopology(reply).ok());
  const std::uint64_t before = MeteredBytes();
  v1::DescribeTableRequest request;
  request.set_table(std::string(100'000, 'x'));
  EXPECT_FALSE(Ask(admin_, &Admin::DescribeTable, request).ok());
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
  EXPECT_TRUE(OpenCallsBecome(before));
}

// gRPC's library closes by our close. It ends this connection without reading its end, or the last calls: its
// peer breaks the rules of HTTP/2 before those, and does not close it.
TEST_F(ServerOfMeteredConnections, CountsNoCallsOfAConnectionThatGrpcCloses) {
  OpenWithAds();
  const std::uint64_t calls = OpenMeteredCalls();
  const std::uint64_t bytes = MeteredBytes();
  const int client = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(server_->port());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  const auto say = [&](const std::string& said) {
    ASSERT_EQ(send(client, said.data(), said.size(), 0), static_cast<ssize_t>(said.size()));
  };
  const std::string settings(kEmptySettings);
  const std::string first = std::string(kPreface) + settings + HeadersThatGoOn(1);
  say(first);
  ASSERT_TRUE(OpenCallsBecome(calls + 1));
  const std::string others = settings + HeadersThatGoOn(3) + HeadersThatGoOn(5);
  say(others);
  EXPECT_TRUE(OpenCallsBecome(calls));
  EXPECT_EQ(MeteredBytes(), bytes + first.size() + others.size()) << "the last calls are metered";
  close(client);
}

}  // namespace
}  // namespace slotwise
