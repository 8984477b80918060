// A Call holds the options of one call of the client, which may take several requests.
// Thread-safety: plain values; Ongoing is safe from any thread.
#ifndef SLOTWISE_CLIENT_CPP_CALL_H_
#define SLOTWISE_CLIENT_CPP_CALL_H_

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "slotwise/client.h"
#include "slotwise/data_type.h"
#include "slotwise/status.h"

namespace slotwise::client {

struct Call {
  std::chrono::milliseconds timeout{0};
  std::chrono::steady_clock::time_point deadline;  // when the timeout is over
  std::stop_token stop;
  // A failed request is sent again until this long after the call's begin, and never after the deadline.
  std::chrono::milliseconds retry_for = std::chrono::milliseconds::max();
  DataType data_type = DataType::kFloat32;    // of values and gradients on the wire
  std::string traceparent = {};               // a W3C Trace Context field; empty: none
  std::vector<LookedUpState> looked_up = {};  // as in CallOptions
  std::vector<std::optional<float>> learning_rates = {};
};

// The server's limits on the size of a request and of a round.
struct ServerLimits {
  std::uint64_t message = 4 << 20;  // bytes of a request; gRPC's own default
  // Bytes of a round; no limit if the server is older than this limit.
  std::uint64_t round = std::numeric_limits<std::uint64_t>::max();

  ServerLimits() = default;
  explicit ServerLimits(const ServerTopology& topology) {
    if (topology.max_message_bytes > 0) message = topology.max_message_bytes;
    if (topology.max_round_bytes > 0) round = topology.max_round_bytes;
  }
};

// Answer names the rank that answered a request, and the server instance that the rank belongs to.
struct Answer {
  std::uint64_t instance = 0;  // 0: unknown
  std::string address = {};    // the rank's
};

// Work that the client must end before it is destroyed.
class Ongoing {
 public:
  virtual ~Ongoing() = default;
  // Ends the work soon, with `status`, unless the work is over.
  virtual void Cancel(const Status& status) = 0;
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_CALL_H_
