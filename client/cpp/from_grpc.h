// Translates statuses of gRPC and of the data transport into Slotwise's. Only this file does so.
// Thread-safety: free functions.
#ifndef SLOTWISE_CLIENT_CPP_FROM_GRPC_H_
#define SLOTWISE_CLIENT_CPP_FROM_GRPC_H_

#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include <chrono>
#include <string>

#include "slotwise/status.h"
#include "slotwise/v1/data.pb.h"

namespace slotwise::client {

// Translates a reply of the data transport from `address`, with the server's reason and message. If the
// server is older than reasons, uses the code's first reason.
Status AnswerOf(const v1::DataReply& reply, const std::string& address);

// Translates the result of a try at `address`: the code, the message, and from the trailing metadata in
// `context` the server's reason and the time to wait before the next try. `gives_reasons`: the server gives a
// reason with every refusal. If gRPC itself ended the try, the reason is `Reason::kNone`.
Status FromGrpc(const grpc::Status& status, const grpc::ClientContext& context, const std::string& address,
                bool gives_reasons);

// Returns whether the same call may succeed after this answer. Every method is safe to send again: a second
// lookup changes nothing more, a push carries its step, and control calls are idempotent. A DEADLINE_EXCEEDED
// that comes before the deadline says that the server dropped a step because a part was missing. CANCELLED
// says that a connection broke. RESOURCE_EXHAUSTED is worth another try if a busy server said when to try
// again, or if there is no reason: then the server's gRPC ended the call because it was receiving too much at
// once (HTTP/2's ENHANCE_YOUR_CALM).
bool IsWorthAnotherTry(const Status& status);

// Returns the last answer from `address`, or gRPC's error that there was none, worded for the caller.
// REQUIRES: `status` is not OK.
Status ForCaller(const Status& status, const std::string& address, std::chrono::milliseconds timeout);

// Returns whether this client's own deadline ended the try. A server's DEADLINE_EXCEEDED has a reason, so it
// is never mistaken for that.
bool IsOwnDeadline(const Status& status);

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_FROM_GRPC_H_
