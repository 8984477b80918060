// A Call says what holds for one call of the client, however many requests it takes.
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
  // What fails is tried again until so long after the call's begin; longer than the timeout: until the
  // deadline.
  std::chrono::milliseconds retry_for = std::chrono::milliseconds::max();
  DataType data_type = DataType::kFloat32;    // of values and gradients on the wire
  std::string traceparent = {};               // as the Trace Context has it; empty: none
  std::vector<LookedUpState> looked_up = {};  // as CallOptions'
  std::vector<std::optional<float>> learning_rates = {};
};

// The server says how large a request, and a round of requests, may be.
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

// Answer says which rank, of which start of the server, has answered a request.
struct Answer {
  std::uint64_t instance = 0;  // which start of the server; 0: nobody knows
  std::string address = {};    // the rank's
};

// Work that the client must end before it is destroyed.
class Ongoing {
 public:
  virtual ~Ongoing() = default;
  // Ends the work with `status`, soon, unless it is over.
  virtual void Cancel(const Status& status) = 0;
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_CALL_H_
