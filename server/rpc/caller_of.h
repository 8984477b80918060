// Identifies the caller of a gRPC call. Thread-safety: a free function.
#ifndef SLOTWISE_SERVER_RPC_CALLER_OF_H_
#define SLOTWISE_SERVER_RPC_CALLER_OF_H_

#include <grpcpp/server_context.h>

#include "server/engine/caller.h"
#include "server/intake/gate.h"

namespace slotwise {

// Returns the caller, identified by the call's token or the connection's certificate.
Caller CallerOf(const grpc::CallbackServerContext& context, const Gate& gate,
                Caller::Clock::time_point deadline = Caller::Clock::time_point::max(),
                CallKind kind = CallKind::kOther);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_CALLER_OF_H_
