// Serves a rank's metrics over HTTP, at /metrics, to Prometheus and others, those of all ranks
// together at /server, and a page for people at /.
// Thread-safety: free functions.
#ifndef SLOTWISE_SERVER_OPS_METRICS_PORT_H_
#define SLOTWISE_SERVER_OPS_METRICS_PORT_H_

#include <functional>
#include <memory>

#include "server/access/access_control.h"
#include "server/ops/host_port.h"
#include "server/ops/http_port.h"
#include "server/ops/metrics.h"
#include "server/ops/metrics_peers.h"
#include "slotwise/status.h"

namespace slotwise {

// Listens. `read` is called for each request, from any thread, by 16 at a time at most, and does
// not wait. `access`, which outlives the port, says who may observe, and so may who has the peers' token.
// FAILED_PRECONDITION: the address cannot be had; one sentence.
Result<std::unique_ptr<HttpPort>> OpenMetricsPort(const HostPort& address, const RankFacts& facts,
                                                  std::function<RankReading()> read,
                                                  const AccessControl& access,
                                                  const std::shared_ptr<const MetricsPeers>& peers);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_OPS_METRICS_PORT_H_
