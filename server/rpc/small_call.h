// SmallCall is a call with one small, parsed message, which is answered once, now or later, with another one.
// SmallMethods are the methods of a gRPC service with such calls.
//
// SmallMethods parses requests itself, because gRPC would answer an invalid message with UNIMPLEMENTED and
// without an error message.
// Thread-safety: a SmallCall is safe from any thread; SmallMethods is filled before its service serves.
#ifndef SLOTWISE_SERVER_RPC_SMALL_CALL_H_
#define SLOTWISE_SERVER_RPC_SMALL_CALL_H_

#include <google/protobuf/descriptor.h>
#include <grpcpp/impl/codegen/server_callback_handlers.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>
#include <grpcpp/support/slice.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "server/rpc/call.h"
#include "server/rpc/watched_gate.h"
#include "slotwise/status.h"
#include "wire/wire_reader.h"

namespace slotwise {

// Copies of a SmallCall are the same call.
template <class RequestT, class ReplyT>
class SmallCall {
 public:
  using Request = RequestT;
  using Reply = ReplyT;

  SmallCall(std::shared_ptr<Call> call, Request request, grpc::ByteBuffer* reply)
      : state_(std::make_shared<const State>(State{std::move(call), std::move(request), reply})) {}

  const Request& request() const { return state_->request; }
  const Caller& caller() const { return state_->call->caller(); }
  // Returns whether no caller waits for an answer (Call::abandoned).
  bool abandoned() const { return state_->call->abandoned(); }

  void Fail(const Status& status) const { state_->call->Fail(status); }
  void Answer(const Reply& reply) const {
    const grpc::Slice bytes(reply.SerializeAsString());
    state_->call->Succeed([&] { *state_->reply = grpc::ByteBuffer(&bytes, 1); });
  }
  // Answers, unless the reply is longer than a message may be; then `instead` tells the caller what to do.
  void AnswerIfItFits(const Reply& reply, std::uint64_t most, const std::string& instead) const {
    if (const std::uint64_t bytes = reply.ByteSizeLong(); bytes > most) {
      return Fail(ResourceExhausted("the reply would have " + std::to_string(bytes) +
                                    " bytes, more than limits.max_message_mib allows a message: " + instead)
                      .Because(Reason::kTooLarge));
    }
    Answer(reply);
  }

 private:
  struct State {
    std::shared_ptr<Call> call;
    Request request;
    grpc::ByteBuffer* reply;  // gRPC keeps it until the call is answered
  };
  std::shared_ptr<const State> state_;
};

// A base class of a service, derived from the class that gRPC has generated for the service.
template <class Generated>
class SmallMethods : public Generated {
 protected:
  // `service` has the methods. `gate` outlives this object.
  SmallMethods(const google::protobuf::ServiceDescriptor& service, WatchedGate& gate)
      : service_(service), gate_(gate) {}

  // The options of all calls of a method.
  struct Traits {
    std::chrono::milliseconds default_deadline;
    Rights needs = Rights::kNone;  // on all tables
  };

  // Serves the method `name` by `answer`, a member function of the service.
  template <class Service, class Request, class Reply>
  void Serve(const std::string& name, const Traits& traits,
             void (Service::*answer)(const SmallCall<Request, Reply>&)) {
    const auto* const method = service_.FindMethodByName(name);
    if (method == nullptr || method->input_type() != Request::descriptor() ||
        method->output_type() != Reply::descriptor()) {
      throw std::logic_error(service_.full_name() + " has no method " + name + " of these messages");
    }
    ++served_;
    const auto serve = [this, answer, traits](grpc::CallbackServerContext* context,
                                              const grpc::ByteBuffer* bytes,
                                              grpc::ByteBuffer* reply) -> grpc::ServerUnaryReactor* {
      auto call = Call::Begin(*context, gate_, traits.default_deadline, CallKind::kOther, traits.needs);
      grpc::ServerUnaryReactor* const reactor = call.get();
      if (call->answered()) return reactor;
      Request request;
      if (const Status status = ReadMessage(*bytes, {}, request); !status.ok()) {
        call->Fail(status);
        return reactor;
      }
      (static_cast<Service*>(this)->*answer)({std::move(call), std::move(request), reply});
      return reactor;
    };
    this->MarkMethodRawCallback(
        method->index(), new grpc::internal::CallbackUnaryHandler<grpc::ByteBuffer, grpc::ByteBuffer>(serve));
  }

  // Throws std::logic_error unless every method is served.
  void CheckThatAllAreServed() const {
    if (served_ != service_.method_count()) {
      throw std::logic_error(service_.full_name() + " has methods that nothing serves");
    }
  }

 private:
  const google::protobuf::ServiceDescriptor& service_;
  WatchedGate& gate_;
  int served_ = 0;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_SMALL_CALL_H_
