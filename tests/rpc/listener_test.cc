// A listener accepts connections up to its limit, closes further ones, and continues when there is room
// again, even after the process ran out of file descriptors.
#include "server/rpc/listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace slotwise {
namespace {

constexpr int kLongest = 20'000;  // ms that anything may take

// A socket that is still to connect: connecting takes no further descriptor.
int NewSocket(int family = AF_INET) {
  const int fd = socket(family, SOCK_STREAM, 0);
  EXPECT_GE(fd, 0);
  return fd;
}

bool Connect(int fd, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

// Whether the other end closes the connection.
bool IsClosed(int fd) {
  pollfd file{fd, POLLIN, 0};
  if (poll(&file, 1, kLongest) != 1) return false;
  char byte = 0;
  const ssize_t got = recv(fd, &byte, 1, 0);
  return got == 0 || (got < 0 && errno == ECONNRESET);
}

class ListenerTest : public testing::Test {
 protected:
  ~ListenerTest() override {
    listener_.reset();
    for (const int fd : ours_) close(fd);
    for (const int fd : taken_) close(fd);
  }

  void Start(std::uint32_t max_connections, const std::string& host = "127.0.0.1") {
    auto listener = Listener::Bind(host, 0, max_connections);
    ASSERT_TRUE(listener.ok()) << listener.status().message();
    listener_ = std::move(*listener);
    listener_->Start([this](int fd) {
      const std::lock_guard lock(mutex_);
      taken_.push_back(fd);
      changed_.notify_all();
    });
  }

  // Connects one more socket of ours. Returns whether it is taken; else it is closed by the listener.
  bool ConnectAndIsTaken() { return ConnectAndIsTaken(NewSocket()); }
  bool ConnectAndIsTaken(int fd) {
    ours_.push_back(fd);
    std::size_t before = 0;
    {
      const std::lock_guard lock(mutex_);
      before = taken_.size();
    }
    if (!Connect(fd, listener_->port())) return false;
    // Either there is one more of the taken, or ours is closed.
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        if (changed_.wait_for(lock, std::chrono::milliseconds(10), [&] { return taken_.size() > before; }))
          return true;
      }
      pollfd file{fd, POLLIN, 0};
      if (poll(&file, 1, 0) == 1 && IsClosed(fd)) return false;
    }
  }

  void CloseTaken() {
    const std::lock_guard lock(mutex_);
    for (const int fd : taken_) close(fd);
    taken_.clear();
  }

  std::unique_ptr<Listener> listener_;
  std::vector<int> ours_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> taken_;
};

TEST_F(ListenerTest, ClosesWhatComesBeyondTheLimitAndGoesOnWhenThereIsRoom) {
  std::vector<int> clients;
  for (int i = 0; i < 40; ++i) clients.push_back(NewSocket());  // below the numbers that count
  Start(16);
  int taken = 0;
  for (int i = 0; i < 30; ++i) taken += ConnectAndIsTaken(clients[static_cast<std::size_t>(i)]) ? 1 : 0;
  EXPECT_EQ(taken, 16);
  EXPECT_FALSE(ConnectAndIsTaken(clients[30]));
  CloseTaken();
  for (std::size_t i = 31; i < 40; ++i) EXPECT_TRUE(ConnectAndIsTaken(clients[i]));
}

TEST_F(ListenerTest, IsNotDeafAfterDescriptorsHaveRunOut) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_max = std::min<rlim_t>(limit.rlim_max, 1200);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_cur, 600);  // raised by the listener
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  Start(1'000'000);
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(limit.rlim_cur, limit.rlim_max);

  const int first = NewSocket();
  const int second = NewSocket();
  const int third = NewSocket();
  std::vector<int> files;
  for (int fd = 0; (fd = open("/dev/null", O_RDONLY)) >= 0;) files.push_back(fd);
  ASSERT_EQ(errno, EMFILE);
  EXPECT_FALSE(ConnectAndIsTaken(first));
  EXPECT_FALSE(ConnectAndIsTaken(second));
  for (const int fd : files) close(fd);
  EXPECT_TRUE(ConnectAndIsTaken(third));
}

TEST_F(ListenerTest, TakesConnectionsToAllAddressesOfTheMachine) {
  for (const char* host : {"0.0.0.0", "[::]", "localhost"}) {
    Start(100, host);
    EXPECT_TRUE(ConnectAndIsTaken()) << host;
    listener_.reset();
  }
}

TEST_F(ListenerTest, TakesNothingOnceItIsStopped) {
  Start(100);
  const std::uint16_t port = listener_->port();
  listener_->Stop();
  listener_->Stop();
  const int fd = NewSocket();
  ours_.push_back(fd);
  EXPECT_FALSE(Connect(fd, port));
  // The port is free again.
  EXPECT_TRUE(Listener::Bind("127.0.0.1", port, 100).ok());
}

}  // namespace
}  // namespace slotwise
