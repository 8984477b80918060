// ServerLimits: what the server says that a request may take.
// Thread-safety: plain values.
#ifndef SLOTWISE_CLIENT_CPP_SERVER_LIMITS_H_
#define SLOTWISE_CLIENT_CPP_SERVER_LIMITS_H_

#include <cstdint>
#include <limits>

#include "slotwise/client.h"

namespace slotwise::client {

struct ServerLimits {
  std::uint64_t message = 4 << 20;  // the bytes of a request; gRPC's own default
  // The bytes that a round gathers; an older server does not say them.
  std::uint64_t round = std::numeric_limits<std::uint64_t>::max();

  ServerLimits() = default;
  explicit ServerLimits(const ServerTopology& topology) {
    if (topology.max_message_bytes > 0) message = topology.max_message_bytes;
    if (topology.max_round_bytes > 0) round = topology.max_round_bytes;
  }
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_SERVER_LIMITS_H_
