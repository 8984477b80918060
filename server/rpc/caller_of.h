// CallerOf says who makes a call of gRPC's. Thread-safety: a free function.
#ifndef SLOTWISE_SERVER_RPC_CALLER_OF_H_
#define SLOTWISE_SERVER_RPC_CALLER_OF_H_

#include <grpcpp/server_context.h>

#include "server/engine/caller.h"
#include "server/intake/gate.h"

namespace slotwise {

// Makes the caller of the connection's peer, whom the call's token or the connection's certificate names.
Caller CallerOf(const grpc::CallbackServerContext& context, const Gate& gate,
                Caller::Clock::time_point deadline = Caller::Clock::time_point::max(),
                CallKind kind = CallKind::kOther);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_CALLER_OF_H_
