#include "server/ops/metrics_port.h"

#include <array>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <utility>

#include "server/ops/metrics_text.h"
#include "server/ops/page.h"
#include "server/ops/sum_of_ranks.h"

namespace slotwise {
namespace {

using Peers = std::shared_ptr<const MetricsPeers>;

// Gives principals that may observe, and the other ranks, the result of `answer`.
HttpPort::Function ForObservers(const AccessControl& access, const Peers& peers,
                                std::function<HttpAnswer()> answer) {
  return [&access, peers, answer = std::move(answer)](const HttpRequest& request) -> HttpAnswer {
    if (peers->Knows(request.authorization)) return answer();
    const PrincipalPtr who = access.AuthenticateHttp(request.authorization);
    const Status allowed = Allow(who.get(), Rights::kObserve, kAllTables, {});
    if (allowed.ok()) return answer();
    if (allowed.code() == StatusCode::kUnauthenticated) {
      return {.status = "401 Unauthorized",
              .body = allowed.message() + "\n",
              .fields = "WWW-Authenticate: Basic realm=\"slotwise\", charset=\"UTF-8\"\r\n"};
    }
    return {.status = "403 Forbidden", .body = allowed.message() + "\n"};
  };
}

// Returns a nonce that cannot be guessed before the page is sent.
std::string DrawNonce() {
  std::random_device random;
  std::array<char, 33> text{};
  std::snprintf(text.data(), text.size(), "%08x%08x%08x%08x", random(), random(), random(), random());
  return text.data();
}

HttpAnswer PageAnswer() {
  const std::string nonce = DrawNonce();
  constexpr std::string_view kPlace = "@NONCE@";
  std::string page(Page());
  for (std::size_t at = page.find(kPlace); at != std::string::npos; at = page.find(kPlace, at)) {
    page.replace(at, kPlace.size(), nonce);
  }
  return {.body = std::move(page),
          .type = "text/html; charset=utf-8",
          .fields = "Content-Security-Policy: default-src 'none'; connect-src 'self'; script-src 'nonce-" +
                    nonce + "'; style-src 'nonce-" + nonce +
                    "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"};
}

HttpAnswer MetricsAnswer(std::string text) {
  // The time of the reading, by this host's clock; the page computes rates from it.
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const std::string time = std::to_string(std::chrono::duration<double, std::milli>(now).count());
  return {.body = std::move(text),
          .type = "text/plain; version=0.0.4; charset=utf-8",
          .fields = "Slotwise-Time: " + time + "\r\n"};
}

HttpAnswer ServerAnswer(std::string own, const MetricsPeers& peers) {
  const auto texts = peers.ReadAll(std::move(own));
  if (!texts.ok()) return {.status = "503 Service Unavailable", .body = texts.status().message() + "\n"};
  return MetricsAnswer(SumOfRanks(*texts));
}

// Facts for the page that are in no metric.
HttpAnswer RankAnswer(const RankFacts& facts) {
  const nlohmann::json rank{{"rank", facts.rank},
                            {"ranks", facts.ranks},
                            {"first_here", facts.rank - facts.local_rank},
                            {"here", facts.local_size},
                            {"first_port", facts.first_port}};
  return {.body = rank.dump(), .type = "application/json"};
}

}  // namespace

Result<std::unique_ptr<HttpPort>> OpenMetricsPort(const HostPort& address, const RankFacts& facts,
                                                  std::function<RankReading()> read,
                                                  const AccessControl& access,
                                                  const std::shared_ptr<const MetricsPeers>& peers) {
  const auto text = [facts, read = std::move(read)] { return MetricsText(MetricsOf(facts, read())); };
  return HttpPort::Open(
      address, "metrics_listen",
      {{"/metrics", ForObservers(access, peers, [text] { return MetricsAnswer(text()); })},
       {"/server", ForObservers(access, peers, [text, peers] { return ServerAnswer(text(), *peers); })},
       {"/rank.json", ForObservers(access, peers, [facts] { return RankAnswer(facts); })},
       {"/", ForObservers(access, peers, PageAnswer)}});
}

}  // namespace slotwise
