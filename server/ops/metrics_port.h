// MetricsPort: serves a rank's metrics over HTTP, at /metrics, to Prometheus or whoever asks.
// Thread-safety: the thread that owns it; the metrics are read from threads of its own.
#ifndef SLOTWISE_SERVER_OPS_METRICS_PORT_H_
#define SLOTWISE_SERVER_OPS_METRICS_PORT_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "server/access/access_control.h"
#include "server/ops/host_port.h"
#include "server/ops/metrics.h"
#include "slotwise/status.h"

namespace slotwise {

class MetricsPort {
 public:
  // Listens. `read` is called for each request, from any thread, by two at a time at most, and waits for
  // nobody. `access`, which outlives the port, says who may observe. FAILED_PRECONDITION: the address cannot
  // be had; one sentence.
  static Result<std::unique_ptr<MetricsPort>> Open(const HostPort& address, RankFacts facts,
                                                   std::function<RankReading()> read,
                                                   const AccessControl& access);
  // Waits for requests that are being answered.
  ~MetricsPort();
  MetricsPort(const MetricsPort&) = delete;
  MetricsPort& operator=(const MetricsPort&) = delete;

  // Returns the port that it listens at.
  std::uint16_t port() const;

 private:
  class Impl;
  explicit MetricsPort(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_OPS_METRICS_PORT_H_
