#include "server/ops/metrics_port.h"

#include <CivetServer.h>
#include <prometheus/text_serializer.h>
#include <spdlog/spdlog.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/ops/page.h"

namespace slotwise {
namespace {

// So many requests are answered at once, and so many more connections wait; one that brings or takes nothing
// for so long is closed.
constexpr int kAtOnce = 2;
constexpr int kWaiting = 16;
constexpr std::chrono::milliseconds kTimeout{5000};

// Civetweb's own words would go to standard error, past the log.
CivetCallbacks Callbacks() {
  CivetCallbacks callbacks;
  callbacks.log_message = [](const mg_connection*, const char* message) {
    spdlog::debug("the metrics' port: {}", message);
    return 1;
  };
  return callbacks;
}

// Nothing of an answer is kept, shown in somebody else's page, or taken for what it is not.
constexpr std::string_view kFields =
    "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
    "Connection: close\r\n";

void Answer(mg_connection* to, const char* status, std::string_view fields, const char* type,
            std::string_view body) {
  const std::string head = std::string("HTTP/1.1 ") + status + "\r\nContent-Type: " + type +
                           "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
                           std::string(kFields) + std::string(fields) + "\r\n";
  if (mg_write(to, head.data(), head.size()) > 0) mg_write(to, body.data(), body.size());
}

// Answers GET at one path, to whoever may observe.
class Answers final : public CivetHandler {
 public:
  using Write = std::function<void(mg_connection*)>;
  Answers(std::string path, const AccessControl& access, Write write)
      : path_(std::move(path)), access_(access), write_(std::move(write)) {}

  bool handleGet(CivetServer*, mg_connection* from) override {
    // Civetweb hands over what lies below the path, too.
    if (path_ != mg_get_request_info(from)->local_uri) {
      Answer(from, "404 Not Found", {}, "text/plain", "There is nothing here.\n");
      return true;
    }
    const char* const said = mg_get_header(from, "Authorization");
    const PrincipalPtr who = access_.AuthenticateHttp(said == nullptr ? std::string_view() : said);
    const Status allowed = Allow(who.get(), Rights::kObserve, kAllTables, {});
    if (allowed.ok()) {
      write_(from);
    } else if (allowed.code() == StatusCode::kUnauthenticated) {
      Answer(from, "401 Unauthorized", "WWW-Authenticate: Basic realm=\"slotwise\", charset=\"UTF-8\"\r\n",
             "text/plain", allowed.message() + "\n");
    } else {
      Answer(from, "403 Forbidden", {}, "text/plain", allowed.message() + "\n");
    }
    return true;
  }

 private:
  const std::string path_;
  const AccessControl& access_;
  const Write write_;
};

// Returns a word that nobody can guess before the page is sent.
std::string DrawNonce() {
  std::random_device random;
  std::array<char, 33> text{};
  std::snprintf(text.data(), text.size(), "%08x%08x%08x%08x", random(), random(), random(), random());
  return text.data();
}

void SendPage(mg_connection* to) {
  const std::string nonce = DrawNonce();
  constexpr std::string_view kPlace = "@NONCE@";
  std::string page(Page());
  for (std::size_t at = page.find(kPlace); at != std::string::npos; at = page.find(kPlace, at)) {
    page.replace(at, kPlace.size(), nonce);
  }
  const std::string policy =
      "Content-Security-Policy: default-src 'none'; connect-src 'self'; script-src 'nonce-" + nonce +
      "'; style-src 'nonce-" + nonce + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n";
  Answer(to, "200 OK", policy, "text/html; charset=utf-8", page);
}

}  // namespace

class MetricsPort::Impl {
 public:
  Impl(const HostPort& address, RankFacts facts, std::function<RankReading()> read,
       const AccessControl& access)
      : facts_(std::move(facts)),
        read_(std::move(read)),
        metrics_("/metrics", access, [this](mg_connection* to) { SendMetrics(to); }),
        rank_("/rank.json", access, [this](mg_connection* to) { SendRank(to); }),
        page_("/", access, SendPage),
        server_({"listening_ports", address.str(), "num_threads", std::to_string(kAtOnce), "connection_queue",
                 std::to_string(kWaiting), "request_timeout_ms", std::to_string(kTimeout.count())},
                &callbacks_) {
    server_.addHandler("/metrics$", metrics_);
    server_.addHandler("/rank.json$", rank_);
    server_.addHandler("/$", page_);
  }
  ~Impl() { server_.close(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  std::uint16_t port() { return static_cast<std::uint16_t>(server_.getListeningPorts().front()); }

 private:
  void SendMetrics(mg_connection* to) const {
    // When they were read, by this host's clock, from which the page takes rates.
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const std::string time = std::to_string(std::chrono::duration<double, std::milli>(now).count());
    Answer(to, "200 OK", "Slotwise-Time: " + time + "\r\n", "text/plain; version=0.0.4; charset=utf-8",
           prometheus::TextSerializer().Serialize(MetricsOf(facts_, read_())));
  }
  // What the page has to know and no metric says.
  void SendRank(mg_connection* to) const {
    const nlohmann::json rank{{"rank", facts_.rank},
                              {"ranks", facts_.ranks},
                              {"first_here", facts_.rank - facts_.local_rank},
                              {"here", facts_.local_size},
                              {"first_port", facts_.first_port}};
    Answer(to, "200 OK", {}, "application/json", rank.dump());
  }

  const RankFacts facts_;
  const std::function<RankReading()> read_;
  const CivetCallbacks callbacks_ = Callbacks();
  Answers metrics_;
  Answers rank_;
  Answers page_;
  CivetServer server_;
};

MetricsPort::MetricsPort(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MetricsPort::~MetricsPort() = default;

Result<std::unique_ptr<MetricsPort>> MetricsPort::Open(const HostPort& address, RankFacts facts,
                                                       std::function<RankReading()> read,
                                                       const AccessControl& access) {
  try {
    return std::unique_ptr<MetricsPort>(
        new MetricsPort(std::make_unique<Impl>(address, std::move(facts), std::move(read), access)));
  } catch (const CivetException&) {  // which does not say why
    return FailedPrecondition("cannot serve metrics at " + address.str() +
                              ": the address cannot be had (metrics_listen)");
  }
}

std::uint16_t MetricsPort::port() const { return impl_->port(); }

}  // namespace slotwise
