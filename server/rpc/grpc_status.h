// Translates Slotwise's statuses to gRPC's. Only this file does so.
// Thread-safety: free functions.
#ifndef SLOTWISE_SERVER_RPC_GRPC_STATUS_H_
#define SLOTWISE_SERVER_RPC_GRPC_STATUS_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include "slotwise/status.h"

namespace slotwise {

// Cuts the message at 1 KiB, because it is sent twice in HTTP/2 trailers, and peers refuse trailers above 8
// KiB. The status's details have the reason.
grpc::Status ToGrpc(const Status& status);

// Writes the time to wait before another try into the call's trailing metadata, if `status` has one.
// REQUIRES: the call is not finished, and no other thread writes to its context.
void AddRetryAfter(const Status& status, grpc::CallbackServerContext& context);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_GRPC_STATUS_H_
