// Sends gRPC's and protobuf's log lines to the process's log, so that every line has its format and rank.
// Thread-safety: call once, before gRPC is used.
#ifndef SLOTWISE_SERVER_RPC_LIBRARY_LOGS_H_
#define SLOTWISE_SERVER_RPC_LIBRARY_LOGS_H_

namespace slotwise {

// Logs the libraries' lines at level debug, even errors, because any caller could cause any number of them.
// The caller hears of such an error, or Slotwise logs a sentence of its own.
void SendLibraryLogsToOurs();

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_LIBRARY_LOGS_H_
