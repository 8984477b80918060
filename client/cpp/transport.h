// A Transport is a way to one rank: gRPC (grpc_transport.h), or the data transport (data_link.h), whose
// arrays go by sockets, by a shared buffer, or by a GPU's memory. An Exchange is one request to a rank and
// its reply, for either transport.
// Thread-safety: a transport is safe from any thread. An exchange is with one transport at a time, which
// calls it from one thread at a time.
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

  // Returns the gRPC method, for example "/slotwise.v1.Embedding/Lookup".
  virtual std::string method() const = 0;
  // Returns the request for gRPC, the same bytes at every try. The first call writes it.
  virtual const grpc::ByteBuffer& Message() = 0;
  // Reads the reply from gRPC.
  virtual Status ReadMessage(const grpc::ByteBuffer& reply) = 0;

  // Returns this exchange for the data transport; null: the data transport cannot carry it.
  virtual DataExchange* data() { return nullptr; }
};

// An exchange of small messages, whose request is written already.
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

// An exchange of arrays. The data transport sends the arrays from their place in memory, and receives the
// reply's values into their destination.
class DataExchange : public Exchange {
 public:
  DataExchange* data() override { return this; }

  // Writes the request's messages into `call`, and adds its arrays, which live until the call is over.
  using Body = std::vector<std::span<const std::byte>>;
  virtual void Write(v1::DataCall& call, Body& body) = 0;

  // Returns the destination of a reply's values, padding included. An error ends the call.
  using Room = std::vector<std::span<std::byte>>;
  virtual Result<Room> MakeRoom(const v1::DataReply& reply) = 0;
  // Returns the number of bytes that a successful reply's values have, padding included.
  virtual std::uint64_t ValueBytes() const = 0;
  // Called once the values have been received.
  virtual Status Read(const v1::DataReply& reply) = 0;

  // If not null, the request goes by a shared buffer in a device's memory. Then Write adds arrays of the
  // device's memory, without padding, and the destinations that MakeRoom returns are not used. TakeValues
  // gets the values, which stay in the shared buffer.
  virtual OnDevice* on_device() { return nullptr; }
  virtual void TakeValues(std::shared_ptr<std::byte[]>&& /*values*/) {}

  // By default, only the data transport can carry the exchange.
  std::string method() const override { return {}; }
  const grpc::ByteBuffer& Message() override { throw std::logic_error("gRPC carries no such exchange"); }
  Status ReadMessage(const grpc::ByteBuffer& /*reply*/) override {
    throw std::logic_error("gRPC carries no such exchange");
  }
};

// A Sending holds the options of one try of an exchange.
struct Sending {
  std::chrono::steady_clock::time_point deadline;
  std::string traceparent = {};       // a W3C Trace Context field (data.proto); empty: none
  bool waits_for_connection = false;  // gRPC only: the try waits until there is a connection
};

class Transport {
 public:
  // Called once with the result of a try, after Send has returned, on one of the client's threads: the
  // server's answer, or an error that there was none. If the answer is OK, `read` returns the exchange's
  // status after reading the reply, and reads it first if that is not done. A run that has failed does not
  // read the reply. Once Done has returned, the transport does not use the exchange any more.
  using Read = std::function<Status()>;
  using Done = std::function<void(const Status& answer, const Read& read)>;
  // Ends a try soon, with CANCELLED, unless the try is over. May be called until Done is called.
  using Cancel = std::function<void()>;

  virtual ~Transport() = default;

  // Throws std::bad_alloc, without calling `done`, if there is no memory for the request.
  virtual Cancel Send(std::shared_ptr<Exchange> exchange, const Sending& how, Done done) = 0;

  // Returns whether there is a connection.
  virtual bool connected() const = 0;
  // Begins to connect if there is no connection.
  virtual void Connect() = 0;
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_TRANSPORT_H_
