// ServerLimits: what the server says that a request may take, and the bytes by which it counts.
// Thread-safety: plain values.
#ifndef SLOTWISE_CLIENT_CPP_SERVER_LIMITS_H_
#define SLOTWISE_CLIENT_CPP_SERVER_LIMITS_H_

#include <algorithm>
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

// Returns the bytes that so many keys in so many bags of `columns` floats each count as in a round: what it
// gathers, or 32 a key if that is more.
constexpr std::uint64_t GatheredBytes(std::uint64_t keys, std::uint64_t bags, std::uint64_t columns,
                                      bool weighted) {
  const std::uint64_t gathered = keys * (sizeof(Key) + (weighted ? sizeof(float) : 0)) +
                                 (bags + 1) * sizeof(std::uint32_t) + bags * columns * sizeof(float);
  return std::max(gathered, keys * 32);
}

// Returns the bytes that a part of a step counts as in a round: the server needs as many for partial sums of
// gradients as for a row of floats for each 11 keys, if that is more.
constexpr std::uint64_t StepBytes(std::uint64_t keys, std::uint64_t bags, std::uint64_t columns,
                                  bool weighted) {
  return std::max(GatheredBytes(keys, bags, columns, weighted), (keys + 10) / 11 * columns * sizeof(float));
}

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_SERVER_LIMITS_H_
