#include "server/rpc/call.h"

#include <grpc/support/time.h>

#include <string>

namespace slotwise {

std::shared_ptr<Call> Call::Begin(grpc::CallbackServerContext& context,
                                  std::chrono::milliseconds default_deadline) {
  std::shared_ptr<Call> call(new Call(context.DefaultReactor()));
  const gpr_timespec deadline = context.raw_deadline();
  if (gpr_time_cmp(deadline, gpr_inf_future(deadline.clock_type)) != 0) return call;

  // Weak: the alarm must not keep an answered call until the deadline.
  call->alarm_.Set(std::chrono::system_clock::now() + default_deadline, [weak = std::weak_ptr<Call>(call),
                                                                         default_deadline](bool expired) {
    if (!expired) return;
    if (const auto late = weak.lock()) {
      late->Fail(DeadlineExceeded("not answered within " + std::to_string(default_deadline.count()) +
                                  " ms, the default for a call without a deadline"));
    }
  });
  return call;
}

Call::~Call() { Fail(Status(StatusCode::kInternal, "the request was dropped without an answer")); }

}  // namespace slotwise
