#include "server/ops/http_port.h"

#include <CivetServer.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <utility>
#include <vector>

#include "slotwise/loopback.h"

namespace slotwise {
namespace {

// This many connections are served at once, and this many more may wait. A connection that is silent for
// kTimeout is closed: a request is short, and a slow client would delay an orchestrator's probes.
constexpr int kAtOnce = 16;
constexpr int kWaiting = 256;
constexpr std::chrono::milliseconds kTimeout{1000};

// Forbids browsers to keep an answer, to guess its type, and to tell others where it came from.
constexpr std::string_view kFields =
    "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
    "Connection: close\r\n";

// Civetweb's own messages would go to standard error, past the log.
CivetCallbacks Callbacks() {
  CivetCallbacks callbacks;
  callbacks.log_message = [](const mg_connection*, const char* message) {
    spdlog::debug("HTTP: {}", message);
    return 1;
  };
  return callbacks;
}

void Send(mg_connection* to, const HttpAnswer& answer) {
  const std::string head = std::string("HTTP/1.1 ") + answer.status + "\r\nContent-Type: " + answer.type +
                           "\r\nContent-Length: " + std::to_string(answer.body.size()) + "\r\n" +
                           std::string(kFields) + answer.fields + "\r\n";
  if (mg_write(to, head.data(), head.size()) > 0) mg_write(to, answer.body.data(), answer.body.size());
}

}  // namespace

class HttpPort::Impl final : public CivetHandler {
 public:
  Impl(const HostPort& address, Functions functions)
      : only_host_(IsLoopback(address.host)),
        functions_(std::move(functions)),
        server_({"listening_ports", address.str(), "num_threads", std::to_string(kAtOnce), "connection_queue",
                 std::to_string(kWaiting), "request_timeout_ms", std::to_string(kTimeout.count()),
                 // Pages from other servers may not ask.
                 "access_control_allow_origin", "", "access_control_allow_methods", ""},
                &callbacks_) {
    server_.addHandler("/", *this);  // includes all paths below
  }
  ~Impl() override { server_.close(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  std::uint16_t port() { return static_cast<std::uint16_t>(server_.getListeningPorts().front()); }

  bool handleGet(CivetServer*, mg_connection* from) override {
    if (!IsMeant(from)) {
      Send(from, {.status = "421 Misdirected Request", .body = "This is another host's name.\n"});
      return true;
    }
    const auto function = functions_.find(mg_get_request_info(from)->local_uri);
    if (function == functions_.end()) {
      Send(from, {.status = "404 Not Found", .body = "There is nothing here.\n"});
      return true;
    }
    const char* const said = mg_get_header(from, "Authorization");
    Send(from, function->second({.authorization = said == nullptr ? std::string_view() : said}));
    return true;
  }

 private:
  // Returns whether the request's Host means this host. If only this host may ask, this refuses a page whose
  // domain name was made to resolve to this host's address, because the request has that name.
  bool IsMeant(const mg_connection* connection) const {
    const char* const said = mg_get_header(connection, "Host");
    if (!only_host_ || said == nullptr) return true;
    const std::string_view host = said;
    const std::size_t colon = host.ends_with(']') ? std::string_view::npos : host.rfind(':');
    return IsLoopback(host.substr(0, colon));
  }

  const bool only_host_;
  const Functions functions_;
  const CivetCallbacks callbacks_ = Callbacks();
  CivetServer server_;
};

HttpPort::HttpPort(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpPort::~HttpPort() = default;

Result<std::unique_ptr<HttpPort>> HttpPort::Open(const HostPort& address, std::string_view field,
                                                 Functions functions) {
  try {
    return std::unique_ptr<HttpPort>(new HttpPort(std::make_unique<Impl>(address, std::move(functions))));
  } catch (const CivetException&) {  // it does not say why
    return FailedPrecondition("cannot listen at " + address.str() + ": the address cannot be had (" +
                              std::string(field) + ")");
  }
}

std::uint16_t HttpPort::port() const { return impl_->port(); }

}  // namespace slotwise
