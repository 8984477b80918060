// Serves metrics over HTTP: a rank's own at /metrics, all ranks' sum at /server, and a page for people at /.
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

// Listens. `read` is called for each request, from any thread, at most 16 times at once, and must not wait.
// Callers need the right to observe, by `access`, which outlives the port, or the peers' token.
// FAILED_PRECONDITION, in one sentence: it cannot listen at the address.
Result<std::unique_ptr<HttpPort>> OpenMetricsPort(const HostPort& address, const RankFacts& facts,
                                                  std::function<RankReading()> read,
                                                  const AccessControl& access,
                                                  const std::shared_ptr<const MetricsPeers>& peers);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_OPS_METRICS_PORT_H_
