// A Call is one unary call that is answered later, from another thread, exactly once and in bounded time.
//
// A caller's own deadline bounds its call, because the caller's gRPC ends the call. A caller without a
// deadline would wait for ever if a rank hung, so its call gets a default deadline. After that the call is
// answered DEADLINE_EXCEEDED, and the engine's later answer is dropped. As with a caller's own deadline, a
// push may still be applied; the caller finds out by pushing again with the same step id. A cancelled call is
// answered like any other, and gRPC drops the answer. But work that waits for its turn is not done for a
// caller that has cancelled or whose deadline has passed (caller.h). A caller that does not read the reply is
// cut off (reply_watch.h).
// Thread-safety: safe from any thread.
#ifndef SLOTWISE_SERVER_RPC_CALL_H_
#define SLOTWISE_SERVER_RPC_CALL_H_

#include <grpcpp/alarm.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <chrono>
#include <memory>

#include "server/engine/caller.h"
#include "server/rpc/caller_of.h"
#include "server/rpc/grpc_status.h"
#include "server/rpc/reply_watch.h"
#include "server/rpc/watched_gate.h"
#include "slotwise/status.h"

namespace slotwise {

class Call final : public grpc::ServerUnaryReactor {
 public:
  // Enters `gate`, and leaves it when gRPC is done with the call. Answers the call at once, before the
  // request is read, if the gate is closed (with the gate's status), if the call's deadline has passed, if
  // the caller is unknown (UNAUTHENTICATED), or if it lacks `needs` on all tables (PERMISSION_DENIED).
  // Lookups and pushes are counted once they are over. `gate` outlives the server. A service's method returns
  // the result's `get()` to gRPC, and must call it before another thread can answer.
  static std::shared_ptr<Call> Begin(grpc::CallbackServerContext& context, WatchedGate& gate,
                                     std::chrono::milliseconds default_deadline,
                                     CallKind kind = CallKind::kOther, Rights needs = Rights::kNone);

  // Returns the caller.
  const Caller& caller() const { return caller_; }

  // Returns whether the call is answered or is being answered, so that nothing is left to do for it.
  bool answered() const { return answered_.load(std::memory_order_acquire); }

  // Returns whether no caller waits for an answer: the caller has gone or cancelled, or the call is answered.
  bool abandoned() const { return answered() || caller_.gone(); }

  // Calls `write_reply` and answers OK, unless the call is answered already, and its reply is gone.
  template <class WriteReply>
  void Succeed(WriteReply&& write_reply) {
    if (!Claim()) return;
    write_reply();
    End({});
  }

  void Fail(const Status& status) {
    if (Claim()) End(status);
  }

 private:
  Call(WatchedGate& gate, grpc::CallbackServerContext& context, CallKind kind)
      : gate_(gate),
        context_(context),
        caller_(CallerOf(context, gate, DeadlineOf(context), kind)),
        reply_(gate.replies(), context, caller_) {}

  // Returns the time at which gRPC would end the call. gRPC's clock may be set, unlike this one.
  static Caller::Clock::time_point DeadlineOf(const grpc::CallbackServerContext& context);
  // Returns true only the first time. gRPC keeps the reply alive until the thread that got true calls Finish.
  bool Claim() { return !answered_.exchange(true, std::memory_order_acq_rel); }

  void End(const Status& status);
  void AnswerAfter(std::chrono::milliseconds default_deadline);
  void OnCancel() override;
  void OnDone() override;

  WatchedGate& gate_;
  grpc::CallbackServerContext& context_;  // gRPC keeps it until it is done with the call
  const Caller caller_;
  ReplyWatch::Reply reply_;
  std::atomic<bool> answered_{false};
  grpc::Alarm alarm_;           // its destructor cancels it
  std::shared_ptr<Call> self_;  // keeps the call alive until gRPC is done with it
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_CALL_H_
