// Asks the standard health service whether a server is SERVING.
// Thread-safety: a free function.
#ifndef SLOTWISE_CLIENT_CTL_HEALTH_H_
#define SLOTWISE_CLIENT_CTL_HEALTH_H_

#include <chrono>
#include <string>

#include "slotwise/credentials.h"
#include "slotwise/status.h"

namespace slotwise::ctl {

// Returns the status of the whole server by grpc.health.v1.Health: "SERVING", "NOT_SERVING" or "UNKNOWN".
// UNAVAILABLE: the server did not answer within `timeout`. `wait`: asks again until the server listens and is
// SERVING.
Result<std::string> Health(const std::string& address, const Credentials& credentials,
                           std::chrono::milliseconds timeout, bool wait);

}  // namespace slotwise::ctl

#endif  // SLOTWISE_CLIENT_CTL_HEALTH_H_
