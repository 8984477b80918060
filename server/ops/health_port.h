// Tells over HTTP whether a rank is alive (/livez) and whether it serves (/readyz), for orchestrators whose
// probes have no certificate and no token. The port tells nothing else, so it answers every caller.
// Thread-safety: free functions.
#ifndef SLOTWISE_SERVER_OPS_HEALTH_PORT_H_
#define SLOTWISE_SERVER_OPS_HEALTH_PORT_H_

#include <functional>
#include <memory>

#include "server/ops/host_port.h"
#include "server/ops/http_port.h"
#include "slotwise/status.h"

namespace slotwise {

// Listens. /livez is always answered 200: a rank that is stuck ends itself. /readyz is answered 200 while
// `serves()` is true, else 503; `serves` is called from any thread. FAILED_PRECONDITION, in one sentence: it
// cannot listen at the address.
Result<std::unique_ptr<HttpPort>> OpenHealthPort(const HostPort& address, std::function<bool()> serves);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_OPS_HEALTH_PORT_H_
