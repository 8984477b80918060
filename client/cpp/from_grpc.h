// Translates statuses of gRPC and of the data transport to Slotwise's; no other code does.
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

// Returns what a reply of the data transport from `address` says: by the number of gRPC's code, and the
// server's reason and words. A server that is older than reasons has its code's first one.
Status AnswerOf(const v1::DataReply& reply, const std::string& address);

// Returns what a try at `address` has ended with: the code, the server's reason and words, and when to try
// again, which the trailing metadata of `context` say. `gives_reasons`: the server gives a reason with every
// refusal. Where gRPC itself has ended the try, there is none: `Reason::kNone`.
Status FromGrpc(const grpc::Status& status, const grpc::ClientContext& context, const std::string& address,
                bool gives_reasons);

// Returns true for answers after which the same call may succeed. Every method is safe to send again: a
// second lookup changes nothing that the first did not, a push carries its step, and the control calls are
// idempotent. With time left, DEADLINE_EXCEEDED says that the server dropped a step because a part was
// missing; CANCELLED says that a connection broke. RESOURCE_EXHAUSTED is worth another try if a busy server
// said when to try again, or if it has no reason: then the server's gRPC has ended the call, because the
// server was receiving too much at once (HTTP/2's ENHANCE_YOUR_CALM).
bool IsWorthAnotherTry(const Status& status);

// Returns the last answer from `address`, or gRPC's word that there was none, in words for the caller.
// REQUIRES: `status` is not OK.
Status ForCaller(const Status& status, const std::string& address, std::chrono::milliseconds timeout);

// Returns true if a try was ended by this client's own clock: no server says so, because a server's
// DEADLINE_EXCEEDED has a reason.
bool IsOwnDeadline(const Status& status);

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_FROM_GRPC_H_
