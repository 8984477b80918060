// gRPC's own log lines go where ours go, so that every line has our format and rank.
// Thread-safety: call once, before gRPC is used.
#ifndef SLOTWISE_SERVER_RPC_GRPC_LOG_H_
#define SLOTWISE_SERVER_RPC_GRPC_LOG_H_

namespace slotwise {

// At level debug, errors too: what gRPC calls an error is told to the caller, or said by us in a sentence.
void SendGrpcLogToOurs();

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_GRPC_LOG_H_
