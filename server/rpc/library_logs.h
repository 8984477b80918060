// gRPC's and protobuf's own log lines go where ours go, so that every line has our format and rank.
// Thread-safety: call once, before gRPC is used.
#ifndef SLOTWISE_SERVER_RPC_LIBRARY_LOGS_H_
#define SLOTWISE_SERVER_RPC_LIBRARY_LOGS_H_

namespace slotwise {

// At level debug, errors too: what they call an error is told to the caller, or said by us in a sentence, and any
// caller can make them write as many as it likes.
void SendLibraryLogsToOurs();

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_LIBRARY_LOGS_H_
