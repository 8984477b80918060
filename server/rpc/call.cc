#include "server/rpc/call.h"

#include <grpc/support/time.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "wire/hand_over.h"

namespace slotwise {

std::shared_ptr<Call> Call::Begin(grpc::CallbackServerContext& context, WatchedGate& gate,
                                  std::chrono::milliseconds default_deadline, CallKind kind, Rights needs) {
  std::shared_ptr<Call> call(new Call(gate, context, kind));
  call->self_ = call;
  HandOver(call.get());
  if (Status status = gate.Enter(call->caller_); !status.ok()) {
    call->Fail(status);
    return call;
  }
  if (Status allowed =
          needs == Rights::kNone ? Status() : Allow(call->caller_.principal(), needs, kAllTables, {});
      !allowed.ok()) {
    call->Fail(allowed);
    return call;
  }
  if (call->caller_.gone()) {
    call->Fail(DeadlineExceeded("the deadline passed before the request was read"));
    return call;
  }
  const gpr_timespec deadline = context.raw_deadline();
  if (gpr_time_cmp(deadline, gpr_inf_future(deadline.clock_type)) == 0) call->AnswerAfter(default_deadline);
  return call;
}

Caller::Clock::time_point Call::DeadlineOf(const grpc::CallbackServerContext& context) {
  const gpr_timespec deadline = context.raw_deadline();
  if (gpr_time_cmp(deadline, gpr_inf_future(deadline.clock_type)) == 0)
    return Caller::Clock::time_point::max();
  const gpr_timespec left =
      gpr_time_sub(gpr_convert_clock_type(deadline, GPR_CLOCK_MONOTONIC), gpr_now(GPR_CLOCK_MONOTONIC));
  // A deadline that is many days away makes no difference, and a very long one would overflow the clock.
  constexpr std::int64_t kMostSeconds = 1'000'000;
  if (left.tv_sec > kMostSeconds) return Caller::Clock::time_point::max();
  return Caller::Clock::now() + std::chrono::seconds(left.tv_sec) + std::chrono::nanoseconds(left.tv_nsec);
}

void Call::End(const Status& status) {
  caller_.times().NoteReply(status);
  AddRetryAfter(status, context_);
  reply_.Begin();
  Finish(ToGrpc(status));
}

void Call::AnswerAfter(std::chrono::milliseconds default_deadline) {
  // The pointer is weak, so that the alarm does not keep an answered call until the deadline.
  alarm_.Set(std::chrono::system_clock::now() + default_deadline, [weak = std::weak_ptr<Call>(self_),
                                                                   default_deadline](bool expired) {
    if (!expired) return;
    if (const auto late = weak.lock()) {
      late->caller_.Leave();
      late->Fail(DeadlineExceeded("not answered within " + std::to_string(default_deadline.count()) +
                                  " ms, the default for a call without a deadline"));
    }
  });
}

void Call::OnCancel() {
  TakeOver(this);
  caller_.Leave();
  HandOver(this);
}

void Call::OnDone() {
  reply_.End();
  TakeOver(this);
  gate_.Leave(caller_);
  // `last` may be the last reference, and then destroys this object.
  const std::shared_ptr<Call> last = std::move(self_);
}

}  // namespace slotwise
