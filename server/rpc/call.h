// One unary call that is answered later, from another thread: exactly once, and in bounded time.
//
// A caller that sets a deadline is bounded by it: its own gRPC ends the call. A caller that sets none would wait for
// ever if a rank hung, so it gets a default: past it the call is answered DEADLINE_EXCEEDED, and what the engine
// says later of it is dropped. That is no different from a caller's own deadline: a push may still be applied, and
// asking again with the same step id tells.
// A cancelled call is answered like any other; gRPC throws the answer away.
// Thread-safety: safe from any thread.
#ifndef SLOTWISE_SERVER_RPC_CALL_H_
#define SLOTWISE_SERVER_RPC_CALL_H_

#include <grpcpp/alarm.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <chrono>
#include <memory>

#include "server/rpc/grpc_status.h"
#include "slotwise/status.h"

namespace slotwise {

class Call {
 public:
  // Who holds the result can answer the call. If nobody can any more, and nobody has, it is answered INTERNAL.
  static std::shared_ptr<Call> Begin(grpc::CallbackServerContext& context,
                                     std::chrono::milliseconds default_deadline);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // What the service's method returns to gRPC. Take it before anybody else can answer: the call may be over then.
  grpc::ServerUnaryReactor* reactor() const { return reactor_; }

  // Answers OK after `write_reply`, unless the call is answered already: then the reply is no longer there to write.
  template <class WriteReply>
  void Succeed(WriteReply&& write_reply) {
    if (!Claim()) return;
    write_reply();
    reactor_->Finish(grpc::Status::OK);
  }

  void Fail(const Status& status) {
    if (Claim()) reactor_->Finish(ToGrpc(status));
  }

 private:
  explicit Call(grpc::ServerUnaryReactor* reactor) : reactor_(reactor) {}

  // True for the first who asks. Until it calls Finish, gRPC keeps reactor and reply alive.
  bool Claim() { return !answered_.exchange(true, std::memory_order_acq_rel); }

  grpc::ServerUnaryReactor* reactor_;
  std::atomic<bool> answered_{false};
  grpc::Alarm alarm_;  // its end cancels it
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_CALL_H_
