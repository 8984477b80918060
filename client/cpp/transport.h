// A Transport is a way to one rank: gRPC (grpc_transport.h), or the data transport (data_link.h), whose
// arrays go by sockets, by memory that is shared with the server, or by a GPU's memory. An Exchange is one
// request to a rank and its reply, whichever transport carries them.
// Thread-safety: a transport is safe from any thread. One transport has an exchange at a time, and calls it
// from one thread at a time.
#ifndef SLOTWISE_CLIENT_CPP_TRANSPORT_H_
#define SLOTWISE_CLIENT_CPP_TRANSPORT_H_

#include <grpcpp/support/byte_buffer.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "client/cpp/gpu_shared_buffer.h"
#include "slotwise/status.h"
#include "slotwise/v1/data.pb.h"

namespace slotwise::client {

class DataExchange;

class Exchange {
 public:
  virtual ~Exchange() = default;

  // Returns the gRPC method: "/slotwise.v1.Embedding/Lookup".
  virtual std::string method() const = 0;
  // Returns the request as gRPC carries it: the same bytes at every try. The first call writes it.
  virtual const grpc::ByteBuffer& Message() = 0;
  // Reads the reply that gRPC has brought.
  virtual Status ReadMessage(const grpc::ByteBuffer& reply) = 0;

  // Returns the same exchange as the data transport carries it; null: that does not.
  virtual DataExchange* data() { return nullptr; }
};

// A small message, which is there.
class MessageExchange final : public Exchange {
 public:
  using Read = std::function<Status(const grpc::ByteBuffer& reply)>;

  // `method` is for example "/slotwise.v1.Admin/Digest".
  MessageExchange(std::string method, const grpc::ByteBuffer& message, Read read)
      : method_(std::move(method)), message_(message), read_(std::move(read)) {}

  std::string method() const override { return method_; }
  const grpc::ByteBuffer& Message() override { return message_; }
  Status ReadMessage(const grpc::ByteBuffer& reply) override { return read_(reply); }

 private:
  const std::string method_;
  const grpc::ByteBuffer message_;
  const Read read_;
};

// An exchange of arrays, which the data transport sends from where they lie, and whose reply's values it
// receives where they are to lie.
class DataExchange : public Exchange {
 public:
  DataExchange* data() override { return this; }

  // Writes the request: its messages, and the arrays behind them, which have to stay until the call is over.
  using Body = std::vector<std::span<const std::byte>>;
  virtual void Write(v1::DataCall& call, Body& body) = 0;

  // Says where the values of a reply go: so many bytes, padding included. An error ends the call.
  using Room = std::vector<std::span<std::byte>>;
  virtual Result<Room> MakeRoom(const v1::DataReply& reply) = 0;
  // Returns how many bytes a reply's values have if all is well, padding included.
  virtual std::uint64_t ValueBytes() const = 0;
  // The values are there.
  virtual Status Read(const v1::DataReply& reply) = 0;

  // If not null, the request goes by a shared buffer in a device's memory: what Write gives are arrays there,
  // without padding, and what MakeRoom says goes nowhere. The values stay where they are, from TakeValues on.
  virtual OnDevice* on_device() { return nullptr; }
  virtual void TakeValues(std::shared_ptr<std::byte[]>&& /*values*/) {}

  // An exchange that has no form for gRPC is carried by the data transport alone.
  std::string method() const override { return {}; }
  const grpc::ByteBuffer& Message() override { throw std::logic_error("gRPC carries no such exchange"); }
  Status ReadMessage(const grpc::ByteBuffer& /*reply*/) override {
    throw std::logic_error("gRPC carries no such exchange");
  }
};

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
