// Asks the standard health service whether a server is SERVING.
// Thread-safety: a free function.
#ifndef SLOTWISE_CLIENT_CTL_HEALTH_H_
#define SLOTWISE_CLIENT_CTL_HEALTH_H_

#include <chrono>
#include <string>

#include "slotwise/credentials.h"
#include "slotwise/status.h"

namespace slotwise::ctl {

// Returns what grpc.health.v1.Health says of the whole server: "SERVING", "NOT_SERVING" or "UNKNOWN".
// UNAVAILABLE: nobody answered within `timeout`. With `wait`, asks again while the server does not listen yet
// or is not SERVING yet.
Result<std::string> Health(const std::string& address, const Credentials& credentials,
                           std::chrono::milliseconds timeout, bool wait);

}  // namespace slotwise::ctl

#endif  // SLOTWISE_CLIENT_CTL_HEALTH_H_
