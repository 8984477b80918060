// The heartbeat reports a neighbour that is gone or silent, and nothing else.
#include "server/collective/heartbeat.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstring>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace slotwise {
namespace {

using std::chrono::milliseconds;

// No test on any machine waits for kNever, and every test can wait for kSoon.
constexpr milliseconds kNever{3'600'000};
constexpr milliseconds kSoon{200};

std::unique_ptr<Heartbeat> Listening() {
  auto heartbeat = Heartbeat::Listen(true);
  EXPECT_TRUE(heartbeat.ok()) << heartbeat.status().message();
  return std::move(*heartbeat);
}

std::vector<Heartbeat::Contact> ContactsOf(const std::vector<std::unique_ptr<Heartbeat>>& ranks) {
  std::vector<Heartbeat::Contact> contacts;
  for (const auto& rank : ranks) {
    contacts.push_back(rank->contact());
    const std::string host = "host" + std::to_string(contacts.size() - 1);
    contacts.back().host = {};
    std::memcpy(contacts.back().host.data(), host.data(), host.size());
  }
  return contacts;
}

// All ranks of a ring, each met by a thread of its own.
std::vector<std::unique_ptr<Heartbeat>> Ring(int size) {
  std::vector<std::unique_ptr<Heartbeat>> ranks;
  for (int r = 0; r < size; ++r) ranks.push_back(Listening());
  const auto contacts = ContactsOf(ranks);
  std::vector<std::thread> meetings;
  for (int r = 0; r < size; ++r) {
    meetings.emplace_back([&, r] {
      const Status met = ranks[static_cast<std::size_t>(r)]->Meet(contacts, Rank{r}, kNever);
      EXPECT_TRUE(met.ok()) << met.message();
    });
  }
  for (std::thread& meeting : meetings) meeting.join();
  return ranks;
}

// Rank 1 of two, played by the test.
class ARankAndItsNeighbour : public testing::Test {
 protected:
  ARankAndItsNeighbour() {
    std::uint16_t port = 0;
    listening_ = ListenAtAnyPort(true, port);
    Heartbeat::Contact other;
    other.port = {static_cast<std::uint8_t>(port >> 8), static_cast<std::uint8_t>(port & 255)};
    other.addresses[0] = kLoopback;
    std::strcpy(other.host.data(), "elsewhere");
    contacts_ = {rank_->contact(), other};
  }

  // Takes the rank's call, and answers its hello, or one byte of it otherwise.
  Socket Answer(int wrong_byte = -1) {
    pollfd call{listening_.fd(), POLLIN, 0};
    poll(&call, 1, -1);
    Socket socket(accept(listening_.fd(), nullptr, nullptr));
    std::array<unsigned char, 24> hello{};
    EXPECT_EQ(recv(socket.fd(), hello.data(), hello.size(), MSG_WAITALL), ssize_t{hello.size()});
    EXPECT_EQ(std::memcmp(hello.data(), rank_->contact().secret.data(), 16), 0);
    std::swap_ranges(hello.begin() + 16, hello.begin() + 20, hello.begin() + 20);
    if (wrong_byte >= 0) hello[static_cast<std::size_t>(wrong_byte)] ^= 1;
    send(socket.fd(), hello.data(), hello.size(), MSG_NOSIGNAL);
    return socket;
  }
  Socket Meet() {
    auto met = std::async(std::launch::async, [this] { return rank_->Meet(contacts_, Rank{0}, kNever); });
    Socket socket = Answer();
    EXPECT_TRUE(met.get().ok());
    return socket;
  }
  void Start(milliseconds limit) {
    rank_->Start(limit, [this](const std::string& why) { lost_.set_value(why); });
  }
  std::string Lost() { return lost_.get_future().get(); }

  std::promise<std::string> lost_;
  std::unique_ptr<Heartbeat> rank_ = Listening();
  Socket listening_;
  std::vector<Heartbeat::Contact> contacts_;
};

TEST_F(ARankAndItsNeighbour, ReportsANeighbourThatIsGone) {
  Socket neighbour = Meet();
  Start(kNever);
  neighbour = {};
  EXPECT_EQ(Lost().find("rank 1 on elsewhere is gone"), 0U);
}

TEST_F(ARankAndItsNeighbour, ReportsANeighbourThatSaysNothing) {
  const Socket neighbour = Meet();
  Start(kSoon);
  const std::string why = Lost();
  EXPECT_EQ(why.find("nothing was heard of rank 1 on elsewhere for 0."), 0U) << why;
}

TEST_F(ARankAndItsNeighbour, HearsANeighbourThatBeatsAndBeatsItself) {
  const Socket neighbour = Meet();
  Start(kSoon);
  const auto begin = Heartbeat::Clock::now();
  while (Heartbeat::Clock::now() - begin < 5 * kSoon) {
    char beat = 0;
    ASSERT_EQ(recv(neighbour.fd(), &beat, 1, 0), 1);
    ASSERT_EQ(send(neighbour.fd(), &beat, 1, MSG_NOSIGNAL), 1);
  }
  send(neighbour.fd(), "!", 1, MSG_NOSIGNAL);
  rank_.reset();
  char last = 0;
  for (char byte = 0; recv(neighbour.fd(), &byte, 1, 0) == 1;) last = byte;
  EXPECT_EQ(last, '!') << "it bids farewell";
}

TEST_F(ARankAndItsNeighbour, LetsANeighbourGoThatBidsFarewell) {
  Socket neighbour = Meet();
  Start(kSoon);
  send(neighbour.fd(), ".!", 2, MSG_NOSIGNAL);
  neighbour = {};
  EXPECT_EQ(lost_.get_future().wait_for(3 * kSoon), std::future_status::timeout);
}

TEST_F(ARankAndItsNeighbour, TriesAgainUntilTheRightOneAnswers) {
  auto met = std::async(std::launch::async, [this] { return rank_->Meet(contacts_, Rank{0}, kNever); });
  for (const int wrong : {0, 15, 16, 23}) Answer(wrong);
  const Socket right = Answer();
  EXPECT_TRUE(met.get().ok());
}

TEST_F(ARankAndItsNeighbour, SaysWhomItDoesNotReach) {
  listening_ = {};
  const Status met = rank_->Meet(contacts_, Rank{0}, milliseconds(50));
  EXPECT_EQ(
      met.message().find("the ranks' heartbeat needs TCP between all hosts, at any port: rank 1 on elsewhere "
                         "cannot be reached at port "),
      0U)
      << met.message();
  EXPECT_NE(met.message().find(" of 127.0.0.1"), std::string::npos) << met.message();
}

TEST(AHeartbeat, RefusesStrangersWhoDoNotKnowTheSecret) {
  std::vector<std::unique_ptr<Heartbeat>> ranks;
  for (int r = 0; r < 2; ++r) ranks.push_back(Listening());
  const auto contacts = ContactsOf(ranks);
  const auto port = static_cast<std::uint16_t>(contacts[1].port[0] << 8 | contacts[1].port[1]);
  // They are there first: some say nothing, one says what it cannot know.
  std::vector<Socket> strangers;
  for (std::size_t i = 0; i < 2 * Heartbeat::kMostCallers; ++i) {
    strangers.push_back(BeginToConnect(kLoopback, port));
    pollfd connected{strangers.back().fd(), POLLOUT, 0};
    poll(&connected, 1, 100);  // more than wait to be accepted may have to wait
  }
  const std::array<char, 24> guess{};
  send(strangers[0].fd(), guess.data(), guess.size(), MSG_NOSIGNAL);
  auto first = std::async(std::launch::async, [&] { return ranks[0]->Meet(contacts, Rank{0}, kNever); });
  const Status second = ranks[1]->Meet(contacts, Rank{1}, kNever);
  EXPECT_TRUE(second.ok()) << second.message();
  EXPECT_TRUE(first.get().ok());
}

TEST(AHeartbeat, OfARingEndsInAnyOrder) {
  for (const int size : {2, 3, 5}) {
    auto ranks = Ring(size);
    for (const auto& rank : ranks) rank->Start(kSoon, [](const std::string& why) { ADD_FAILURE() << why; });
    std::this_thread::sleep_for(2 * kSoon);  // what must not happen is the time itself passing
    for (std::size_t r = 0; r < ranks.size(); ++r) ranks[(r * 2 + 1) % ranks.size()].reset();
  }
}

}  // namespace
}  // namespace slotwise
