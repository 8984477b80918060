// Translates gRPC's statuses to Slotwise's; no other code does.
// Thread-safety: free functions.
#ifndef SLOTWISE_CLIENT_CPP_FROM_GRPC_H_
#define SLOTWISE_CLIENT_CPP_FROM_GRPC_H_

#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include <chrono>
#include <string>

#include "slotwise/status.h"

namespace slotwise::client {

// Returns true for answers after which the same call may succeed. Every method is safe to send again: a
// second lookup changes nothing that the first did not, a push carries its step, and the control calls are
// idempotent. With time left, DEADLINE_EXCEEDED says that the server dropped a step because a part was
// missing; CANCELLED says that a connection broke. RESOURCE_EXHAUSTED is worth another try if the server's
// gRPC says it, which has ended a call because the server was receiving too much at once, or if a busy server
// said when to try again.
bool IsWorthAnotherTry(const grpc::Status& status);

// A busy server's word when to try again goes with its status, whichever door it came through. 0: it said
// nothing, or nothing that makes sense.
std::chrono::milliseconds RetryAfter(const grpc::Status& status);
grpc::Status WithRetryAfter(const grpc::Status& status, std::chrono::milliseconds time);
// Returns `status`, with which the call of `context` has ended, with what the call's trailing metadata say.
grpc::Status WithRetryAfter(const grpc::Status& status, const grpc::ClientContext& context);

// Translates the last answer from `address` (or gRPC's word that there was none) for the caller. REQUIRES:
// `status` is not OK.
Status FromGrpc(const grpc::Status& status, const std::string& address, std::chrono::milliseconds timeout);

// Returns the code's name as gRPC writes it, for every code that gRPC has.
std::string NameOf(grpc::StatusCode code);

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_FROM_GRPC_H_
