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

#include "server/rpc/gate.h"
#include "server/rpc/grpc_status.h"
#include "slotwise/status.h"

namespace slotwise {

class Call final : public grpc::ServerUnaryReactor {
 public:
  // Enters `gate`, and leaves it when gRPC is done with the call. If the gate is closed, the call is answered so.
  // `gate` outlives the server. What a service's method returns to gRPC is `get()` of the result; take it before
  // anybody else can answer.
  static std::shared_ptr<Call> Begin(const grpc::CallbackServerContext& context, Gate& gate,
                                     std::chrono::milliseconds default_deadline);

  // True once the call is answered, or just being answered: nothing is left to do for it.
  bool answered() const { return answered_.load(std::memory_order_acquire); }

  // Answers OK after `write_reply`, unless the call is answered already: then the reply is no longer there to write.
  template <class WriteReply>
  void Succeed(WriteReply&& write_reply) {
    if (!Claim()) return;
    write_reply();
    Finish(grpc::Status::OK);
  }

  void Fail(const Status& status) {
    if (Claim()) Finish(ToGrpc(status));
  }

 private:
  explicit Call(Gate& gate) : gate_(gate) {}

  // True for the first who asks. Until it calls Finish, gRPC keeps the reply alive.
  bool Claim() { return !answered_.exchange(true, std::memory_order_acq_rel); }

  void AnswerAfter(std::chrono::milliseconds default_deadline);
  void OnDone() override;

  Gate& gate_;
  std::atomic<bool> answered_{false};
  grpc::Alarm alarm_;           // its end cancels it
  std::shared_ptr<Call> self_;  // until gRPC is done
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_CALL_H_
