// Tests the ranks' HTTP ports for metrics and for health.
#include "server/ops/http_port.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/ops/health_port.h"
#include "server/ops/metrics_port.h"
#include "tests/support/loopback.h"

namespace slotwise {
namespace {

// Speaks HTTP to a port of this host, as much as a test needs.
class Caller {
 public:
  explicit Caller(std::uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    const timeval limit{60, 0};  // a test that would wait for ever fails instead
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  }
  ~Caller() { ::close(socket_); }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  void Say(const std::string& text) const {
    EXPECT_EQ(::send(socket_, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }
  // All that comes until the connection ends.
  std::string Hear() const {
    std::string heard;
    char some[4096];
    for (ssize_t size = 0; (size = ::recv(socket_, some, sizeof(some), 0)) > 0;) {
      heard.append(some, static_cast<std::size_t>(size));
    }
    return heard;
  }

 private:
  const int socket_;
};

// A port of this host's that gives every request the same answer, and hangs up: a rank's, as a test makes it
// up.
class CannedPort {
 public:
  explicit CannedPort(std::string answer)
      : answer_(std::move(answer)),
        listener_(::socket(AF_INET, SOCK_STREAM, 0)),
        address_(test::ListenAtLoopback(listener_)),
        thread_([this] { Serve(); }) {}
  ~CannedPort() {
    ::shutdown(listener_, SHUT_RDWR);  // ends the thread's accept()
    thread_.join();
    ::close(listener_);
  }
  CannedPort(const CannedPort&) = delete;
  CannedPort& operator=(const CannedPort&) = delete;

  const std::string& address() const { return address_; }

 private:
  void Serve() const {
    for (int connection = 0; (connection = ::accept(listener_, nullptr, nullptr)) >= 0;) {
      std::string request;
      char some[4096];
      while (request.find("\r\n\r\n") == std::string::npos) {
        const ssize_t size = ::recv(connection, some, sizeof(some), 0);
        if (size <= 0) break;
        request.append(some, static_cast<std::size_t>(size));
      }
      for (std::size_t sent = 0; sent < answer_.size();) {
        const ssize_t size = ::send(connection, answer_.data() + sent, answer_.size() - sent, MSG_NOSIGNAL);
        if (size <= 0) break;
        sent += static_cast<std::size_t>(size);
      }
      ::close(connection);
    }
  }

  const std::string answer_;
  const int listener_;
  const std::string address_;
  std::thread thread_;  // the last, because it uses the others
};

std::string Get(std::uint16_t port, const std::string& path) {
  const Caller caller(port);
  caller.Say("GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  return caller.Hear();
}

const AccessControl& Everybody() {
  static const auto access = AccessControl::Make({});
  return **access;
}

Result<std::unique_ptr<HttpPort>> Open(
    std::uint16_t port, std::function<RankReading()> read, std::uint32_t rank = 0,
    const std::shared_ptr<const MetricsPeers>& peers = std::make_shared<MetricsPeers>("a-token-of-the-ranks"),
    const AccessControl& access = Everybody()) {
  return OpenMetricsPort({"127.0.0.1", port}, {.version = "1", .device = "cpu", .rank = rank},
                         std::move(read), access, peers);
}

TEST(MetricsPortTest, ReadsAnewForEachRequestAndServesNothingElse) {
  std::atomic<std::uint64_t> rounds = 0;
  auto port = Open(0, [&] { return RankReading{.calls = {.rounds = ++rounds}}; });
  ASSERT_TRUE(port.ok()) << port.status().message();
  EXPECT_NE(Get((*port)->port(), "/metrics").find("slotwise_rounds_total{rank=\"0\"} 1\n"),
            std::string::npos);
  EXPECT_NE(Get((*port)->port(), "/metrics").find("slotwise_rounds_total{rank=\"0\"} 2\n"),
            std::string::npos);
  EXPECT_NE(Get((*port)->port(), "/").find("<title>Slotwise</title>"), std::string::npos);
  EXPECT_NE(Get((*port)->port(), "/rank.json").find("\"ranks\":1"), std::string::npos);
  for (const char* const path :
       {"/metrics/../../../../etc/passwd", "/etc/passwd", "/metrics/", "/rank.jso"}) {
    EXPECT_NE(Get((*port)->port(), path).find(" 404 "), std::string::npos) << path;
  }
  EXPECT_EQ(rounds, 2U);
}

TEST(MetricsPortTest, AnAddressIsHadOnce) {
  auto port = Open(0, [] { return RankReading(); });
  ASSERT_TRUE(port.ok());
  const auto second = Open((*port)->port(), [] { return RankReading(); });
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(second.status().message(), "cannot listen at 127.0.0.1:" + std::to_string((*port)->port()) +
                                           ": the address cannot be had (metrics_listen)");
}

constexpr int kAtOnce = 16;  // requests that a port answers at once

// Connections that bring nothing end after a while, and others are served then.
TEST(MetricsPortTest, WhoSaysNothingDoesNotHoldItForEver) {
  auto port = Open(0, [] { return RankReading(); });
  ASSERT_TRUE(port.ok());
  std::vector<std::unique_ptr<Caller>> silent;
  for (int i = 0; i < kAtOnce; ++i) {
    silent.push_back(std::make_unique<Caller>((*port)->port()));
    silent.back()->Say("GET /metr");
  }
  EXPECT_NE(Get((*port)->port(), "/metrics").find(" 200 OK"), std::string::npos);
}

TEST(HttpPortTest, AnswersSeveralAtOnce) {
  std::mutex mutex;
  std::condition_variable changed;
  int inside = 0;
  bool alone = false;
  const auto meet = [&](const HttpRequest&) {
    std::unique_lock lock(mutex);
    ++inside;
    changed.notify_all();
    alone |= !changed.wait_for(lock, std::chrono::seconds(30), [&] { return inside == kAtOnce || alone; });
    return HttpAnswer{};
  };
  const auto port = HttpPort::Open({"127.0.0.1", 0}, "x", {{"/", meet}});
  ASSERT_TRUE(port.ok());
  std::vector<std::future<std::string>> answers(kAtOnce);
  for (auto& answer : answers) {
    answer = std::async(std::launch::async, [&port] { return Get((*port)->port(), "/"); });
  }
  for (auto& answer : answers) EXPECT_NE(answer.get().find(" 200 OK"), std::string::npos);
  EXPECT_FALSE(alone) << inside;
}

TEST(MetricsPortTest, EndsThoughSomebodyIsConnected) {
  auto port = Open(0, [] { return RankReading(); });
  ASSERT_TRUE(port.ok());
  const Caller silent((*port)->port());
  silent.Say("GET /metrics HTTP/1.1\r\n");
  // Connections are taken in their order. One that still waited to be taken would not be closed.
  EXPECT_NE(Get((*port)->port(), "/metrics").find(" 200 OK"), std::string::npos);
  *port = nullptr;
  EXPECT_EQ(silent.Hear().find(" 200 OK"), std::string::npos);
}

TEST(MetricsPortTest, AnyRankSaysWhatAllCount) {
  const auto peers = std::make_shared<MetricsPeers>("a-token-of-the-ranks");
  const auto others = std::make_shared<MetricsPeers>("a-token-of-the-ranks");
  const auto strangers = std::make_shared<MetricsPeers>("a-token-of-others");
  // Only the ranks are known.
  const auto access = AccessControl::Make({{.name = "named", .certificate_name = "a.example", .grants = {}}});
  ASSERT_TRUE(access.ok());
  auto first = Open(
      0, [] { return RankReading{.calls = {.rounds = 5}}; }, 0, peers);
  auto second = Open(
      0, [] { return RankReading{.calls = {.rounds = 7}}; }, 1, others, **access);
  auto stranger = Open(
      0, [] { return RankReading{.calls = {.rounds = 9}}; }, 1, strangers, **access);
  ASSERT_TRUE(first.ok() && second.ok() && stranger.ok());
  const auto address = [](const Result<std::unique_ptr<HttpPort>>& port) {
    return "127.0.0.1:" + std::to_string((*port)->port());
  };
  EXPECT_NE(Get((*first)->port(), "/server").find(" 503 "), std::string::npos) << "it knows no peers yet";
  peers->Set(0, {address(first), address(second)});
  const std::string all = Get((*first)->port(), "/server");
  EXPECT_NE(all.find("\nslotwise_rounds_total 12\n"), std::string::npos) << all;
  EXPECT_NE(Get((*second)->port(), "/metrics").find(" 401 "), std::string::npos);
  EXPECT_NE(Get((*second)->port(), "/server").find(" 401 "), std::string::npos);
  peers->Set(0, {address(first), address(stranger)});
  EXPECT_NE(Get((*first)->port(), "/server").find("rank 1 does not say what it counts"), std::string::npos);
  *second = nullptr;
  peers->Set(0, {address(first), "127.0.0.1:1"});
  EXPECT_NE(Get((*first)->port(), "/server").find(" 503 "), std::string::npos);
  EXPECT_NE(Get((*first)->port(), "/metrics").find("slotwise_rounds_total{rank=\"0\"} 5\n"),
            std::string::npos);
}

// Returns a rank's answer with this body, of which it says that it has so many bytes.
std::string AnswerOf(const std::string& body, std::size_t said) {
  return "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(said) + "\r\nConnection: close\r\n\r\n" +
         body;
}

class MetricsPeersTest : public testing::Test {
 protected:
  // Reads the metrics of two ranks, of which the other is there; this one's own address is not needed.
  Result<std::vector<std::string>> ReadBeside(const std::string& address) {
    peers_.Set(0, {"", address});
    return peers_.ReadAll("own 1\n");
  }

 private:
  MetricsPeers peers_{"a-token-of-the-ranks"};
};

TEST_F(MetricsPeersTest, TakesWholeAnswersAlone) {
  const std::string text = "slotwise_rounds_total{rank=\"1\"} 7\n";
  const CannedPort whole(AnswerOf(text, text.size()));
  const auto texts = ReadBeside(whole.address());
  ASSERT_TRUE(texts.ok()) << texts.status().message();
  EXPECT_EQ(*texts, (std::vector<std::string>{"own 1\n", text}));
  const CannedPort cut(AnswerOf(text, text.size() + 1));
  EXPECT_EQ(ReadBeside(cut.address()).status(),
            Unavailable("rank 1 does not say what it counts, at " + cut.address()));
  const CannedPort endless("HTTP/1.1 200 OK\r\n\r\n" + text);
  EXPECT_FALSE(ReadBeside(endless.address()).ok()) << "it is not known to be whole";
}

TEST_F(MetricsPeersTest, TakesNoMoreThanARankMayHave) {
  constexpr std::size_t kMost = std::size_t{64} << 20;
  for (const bool fits : {true, false}) {
    const std::string body(fits ? kMost : kMost + 1, '\n');
    const CannedPort large(AnswerOf(body, body.size()));
    EXPECT_EQ(ReadBeside(large.address()).ok(), fits);
  }
}

// Beyond them a port would have no place left for another rank that asks, and ranks wait for each other.
TEST_F(MetricsPeersTest, ReadsFewTimesAtOnce) {
  std::mutex mutex;
  std::condition_variable changed;
  int inside = 0;
  bool free = false;
  const auto hold = [&](const HttpRequest&) {
    std::unique_lock lock(mutex);
    ++inside;
    changed.notify_all();
    changed.wait_for(lock, std::chrono::seconds(30), [&] { return free; });
    return HttpAnswer{.body = "a 1\n"};
  };
  const auto port = HttpPort::Open({"127.0.0.1", 0}, "x", {{"/metrics", hold}});
  ASSERT_TRUE(port.ok());
  const std::string address = "127.0.0.1:" + std::to_string((*port)->port());
  std::vector<std::future<bool>> readings(MetricsPeers::kMostAtOnce);
  for (auto& reading : readings) {
    reading = std::async(std::launch::async, [&] { return ReadBeside(address).ok(); });
  }
  {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(30),
                                 [&] { return inside == MetricsPeers::kMostAtOnce; }));
  }
  EXPECT_EQ(ReadBeside(address).status(),
            Unavailable("what all ranks count is being read 4 times already, the most at once: ask again"));
  {
    const std::lock_guard lock(mutex);
    free = true;
  }
  changed.notify_all();
  for (auto& reading : readings) EXPECT_TRUE(reading.get());
  EXPECT_TRUE(ReadBeside(address).ok()) << "places are given back";
}

TEST_F(MetricsPeersTest, KeepsNoConnections) {
  const auto open = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  const CannedPort good(AnswerOf("a 1\n", 4));
  const CannedPort bad(AnswerOf("a 1\n", 5));
  const auto before = open();
  for (int i = 0; i < 8; ++i) {
    EXPECT_TRUE(ReadBeside(good.address()).ok());
    EXPECT_FALSE(ReadBeside(bad.address()).ok());
  }
  EXPECT_LE(open(), before + 2) << "each port may still have the last one's other end";
}

TEST(HealthPortTest, SaysWhetherTheRankServesAndNothingElse) {
  std::atomic<bool> serves = false;
  const auto port = OpenHealthPort({"127.0.0.1", 0}, [&] { return serves.load(); });
  ASSERT_TRUE(port.ok()) << port.status().message();
  EXPECT_NE(Get((*port)->port(), "/livez").find(" 200 OK"), std::string::npos);
  EXPECT_NE(Get((*port)->port(), "/readyz").find(" 503 "), std::string::npos);
  serves = true;
  EXPECT_NE(Get((*port)->port(), "/readyz").find(" 200 OK"), std::string::npos);
  serves = false;
  EXPECT_NE(Get((*port)->port(), "/readyz").find(" 503 "), std::string::npos);
  for (const char* const path : {"/", "/metrics", "/rank.json", "/readyz/x"}) {
    EXPECT_NE(Get((*port)->port(), path).find(" 404 "), std::string::npos) << path;
  }
}

TEST(HealthPortTest, AnAddressIsHadOnce) {
  const auto port = OpenHealthPort({"127.0.0.1", 0}, [] { return true; });
  ASSERT_TRUE(port.ok());
  const auto second = OpenHealthPort({"127.0.0.1", (*port)->port()}, [] { return true; });
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find("(health_listen)"), std::string::npos);
}

// A name that stood for somebody's page, and now stands for 127.0.0.1, would let the page read what it may
// not.
TEST(HttpPortTest, AnotherHostsNameIsNotServedAtALoopbackAddress) {
  const auto port =
      HttpPort::Open({"127.0.0.1", 0}, "x", {{"/", [](const HttpRequest&) { return HttpAnswer{}; }}});
  ASSERT_TRUE(port.ok());
  const auto get = [&](const std::string& host) {
    const Caller caller((*port)->port());
    caller.Say("GET / HTTP/1.1\r\n" + host + "Connection: close\r\n\r\n");
    return caller.Hear();
  };
  for (const char* const host :
       {"localhost", "localhost:9464", "127.0.0.1", "127.1.2.3:80", "[::1]", "[::1]:80"}) {
    EXPECT_NE(get(std::string("Host: ") + host + "\r\n").find(" 200 OK"), std::string::npos) << host;
  }
  for (const char* const host :
       {"evil.example", "evil.example:9464", "127.0.0.1.evil.example", "10.0.0.1", "[::2]:1"}) {
    EXPECT_NE(get(std::string("Host: ") + host + "\r\n").find(" 421 "), std::string::npos) << host;
  }
}

// A probe of an orchestrator's asks by the host's address or name; and HTTP/1.0 knows no Host.
TEST(HttpPortTest, HostsNamesDoNotMatterElsewhere) {
  const HttpPort::Functions functions{{"/", [](const HttpRequest&) { return HttpAnswer{}; }}};
  const auto anywhere = HttpPort::Open({"0.0.0.0", 0}, "x", functions);
  const auto here = HttpPort::Open({"127.0.0.1", 0}, "x", functions);
  ASSERT_TRUE(anywhere.ok() && here.ok());
  const Caller named((*anywhere)->port());
  named.Say("GET / HTTP/1.1\r\nHost: rank-0.example:9464\r\nConnection: close\r\n\r\n");
  EXPECT_NE(named.Hear().find(" 200 OK"), std::string::npos);
  for (const auto* const port : {&anywhere, &here}) {
    const Caller nameless((**port)->port());
    nameless.Say("GET / HTTP/1.0\r\n\r\n");
    EXPECT_NE(nameless.Hear().find(" 200 OK"), std::string::npos);
  }
}

TEST(HttpPortTest, AnswersAreKeptNowhereAndTakenForNothingElse) {
  const auto port = HttpPort::Open({"127.0.0.1", 0}, "x",
                                   {{"/", [](const HttpRequest&) { return HttpAnswer{.body = "a body"}; }}});
  ASSERT_TRUE(port.ok());
  for (const char* const path : {"/", "/none"}) {
    const std::string heard = Get((*port)->port(), path);
    for (const char* const field : {"Cache-Control: no-store", "X-Content-Type-Options: nosniff",
                                    "Referrer-Policy: no-referrer", "Connection: close"}) {
      EXPECT_NE(heard.find(std::string("\r\n") + field + "\r\n"), std::string::npos) << field << heard;
    }
    const std::size_t body = heard.find("\r\n\r\n") + 4;
    EXPECT_NE(heard.find("\r\nContent-Length: " + std::to_string(heard.size() - body) + "\r\n"),
              std::string::npos)
        << heard;
  }
}

TEST(HttpPortTest, OtherMethodsThanGetAreNotServed) {
  bool asked = false;
  const auto port = HttpPort::Open({"127.0.0.1", 0}, "x", {{"/", [&](const HttpRequest&) {
                                                              asked = true;
                                                              return HttpAnswer{.body = "a secret"};
                                                            }}});
  ASSERT_TRUE(port.ok());
  for (const char* const method :
       {"HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "PROPFIND"}) {
    const Caller caller((*port)->port());
    caller.Say(
        method +
        std::string(" / HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example\r\n"
                    "Access-Control-Request-Method: GET\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"));
    const std::string heard = caller.Hear();
    EXPECT_EQ(heard.find("a secret"), std::string::npos) << heard;
    EXPECT_EQ(heard.find("Access-Control"), std::string::npos) << heard;
    EXPECT_FALSE(asked) << method;
  }
}

}  // namespace
}  // namespace slotwise
