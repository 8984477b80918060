// The one place where gRPC's statuses become Slotwise's.
// Thread-safety: free functions.
#ifndef SLOTWISE_CLIENT_CPP_FROM_GRPC_H_
#define SLOTWISE_CLIENT_CPP_FROM_GRPC_H_

#include <grpcpp/support/status.h>

#include <chrono>
#include <string>

#include "slotwise/status.h"

namespace slotwise::client {

// True for codes after which the same call may succeed. Every method is safe to send again: lookups change nothing that
// a second one would not, a push carries its step, the control calls are idempotent. DEADLINE_EXCEEDED with time left is
// the server's word that a step was dropped because a part was missing; CANCELLED is a connection that broke.
bool IsWorthAnotherTry(grpc::StatusCode code);

// What the caller hears of the last answer, or none, from `address`. REQUIRES: not OK.
Status FromGrpc(const grpc::Status& status, const std::string& address, std::chrono::milliseconds timeout);

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_FROM_GRPC_H_
