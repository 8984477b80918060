// A Transport is a way to one rank: gRPC (grpc_transport.h), or the data transport (data_link.h), whose
// arrays go by sockets, by memory that is shared with the server, or by a GPU's memory.
// Thread-safety: safe from any thread.
#ifndef SLOTWISE_CLIENT_CPP_TRANSPORT_H_
#define SLOTWISE_CLIENT_CPP_TRANSPORT_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "client/cpp/exchange.h"
#include "slotwise/status.h"

namespace slotwise::client {

// A Sending says how one try of an exchange is sent.
struct Sending {
  std::chrono::steady_clock::time_point deadline;
  std::string traceparent = {};       // the trace that the call belongs to (data.proto); empty: none
  bool waits_for_connection = false;  // gRPC: while there is no connection, the try waits for one
};

class Transport {
 public:
  // Hears once what became of a try, later than Send, on one of the client's threads: the server's answer, or
  // that there was none. If the answer is OK, `read` lets the exchange read the reply, or has done so, and
  // returns what the exchange says of it; a run that has failed does not read the reply. Once Done has
  // returned, the transport uses nothing of the exchange.
  using Read = std::function<Status()>;
  using Done = std::function<void(const Status& answer, const Read& read)>;
  // Ends a try soon, with CANCELLED, unless it is over. May be called until Done is.
  using Cancel = std::function<void()>;

  virtual ~Transport() = default;

  // Throws std::bad_alloc if there is no memory for the request; `done` is not called then.
  virtual Cancel Send(std::shared_ptr<Exchange> exchange, const Sending& how, Done done) = 0;

  // Returns whether there is a connection.
  virtual bool connected() const = 0;
  // Begins to connect, if there is no connection.
  virtual void Connect() = 0;
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_TRANSPORT_H_
