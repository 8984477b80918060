// The standard health service's word on a server.
// Thread-safety: a free function.
#ifndef SLOTWISE_CLIENT_CTL_HEALTH_H_
#define SLOTWISE_CLIENT_CTL_HEALTH_H_

#include <chrono>
#include <string>

#include "slotwise/status.h"

namespace slotwise::ctl {

// What grpc.health.v1.Health says of the whole server: "SERVING", "NOT_SERVING", "UNKNOWN". UNAVAILABLE if nobody
// answers within `timeout`; with `wait`, a server that does not listen yet, or does not serve yet, is asked again.
Result<std::string> Health(const std::string& address, std::chrono::milliseconds timeout, bool wait);

}  // namespace slotwise::ctl

#endif  // SLOTWISE_CLIENT_CTL_HEALTH_H_
