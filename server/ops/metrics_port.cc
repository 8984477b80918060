#include "server/ops/metrics_port.h"

#include <CivetServer.h>
#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace slotwise {
namespace {

// So many requests are answered at once, and so many more connections wait; one that brings or takes nothing
// for so long is closed.
constexpr int kAtOnce = 2;
constexpr int kWaiting = 16;
constexpr std::chrono::milliseconds kTimeout{5000};

class RankMetrics final : public prometheus::Collectable {
 public:
  RankMetrics(RankFacts facts, std::function<RankReading()> read)
      : facts_(std::move(facts)), read_(std::move(read)) {}
  std::vector<prometheus::MetricFamily> Collect() const override { return MetricsOf(facts_, read_()); }

 private:
  const RankFacts facts_;
  const std::function<RankReading()> read_;
};

// Civetweb's own words would go to standard error, past the log.
CivetCallbacks Callbacks() {
  CivetCallbacks callbacks;
  callbacks.log_message = [](const mg_connection*, const char* message) {
    spdlog::debug("the metrics' port: {}", message);
    return 1;
  };
  return callbacks;
}

}  // namespace

class MetricsPort::Impl {
 public:
  Impl(const HostPort& address, RankFacts facts, std::function<RankReading()> read)
      : metrics_(std::make_shared<RankMetrics>(std::move(facts), std::move(read))),
        exposer_(
            {"listening_ports", address.str(), "num_threads", std::to_string(kAtOnce), "connection_queue",
             std::to_string(kWaiting), "request_timeout_ms", std::to_string(kTimeout.count())},
            &callbacks_) {
    exposer_.RegisterCollectable(metrics_);
  }
  std::uint16_t port() const { return static_cast<std::uint16_t>(exposer_.GetListeningPorts().front()); }

 private:
  const CivetCallbacks callbacks_ = Callbacks();
  const std::shared_ptr<RankMetrics> metrics_;
  prometheus::Exposer exposer_;
};

MetricsPort::MetricsPort(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MetricsPort::~MetricsPort() = default;

Result<std::unique_ptr<MetricsPort>> MetricsPort::Open(const HostPort& address, RankFacts facts,
                                                       std::function<RankReading()> read) {
  try {
    return std::unique_ptr<MetricsPort>(
        new MetricsPort(std::make_unique<Impl>(address, std::move(facts), std::move(read))));
  } catch (const CivetException&) {  // which does not say why
    return FailedPrecondition("cannot serve metrics at " + address.str() +
                              ": the address cannot be had (metrics_listen)");
  }
}

std::uint16_t MetricsPort::port() const { return impl_->port(); }

}  // namespace slotwise
