// A Call says what holds for one call of the client, however many requests it takes.
// Thread-safety: plain values; Ongoing is safe from any thread.
#ifndef SLOTWISE_CLIENT_CPP_CALL_H_
#define SLOTWISE_CLIENT_CPP_CALL_H_

#include <chrono>
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

// Answer says which rank, of which start of the server, has answered a request.
struct Answer {
  std::uint64_t incarnation = 0;  // which start of the server; 0: nobody knows
  std::string address = {};       // the rank's
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
