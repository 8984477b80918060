// Sends gRPC's and protobuf's own log lines to our log, so that every line has our format and rank.
// Thread-safety: call once, before gRPC is used.
#ifndef SLOTWISE_SERVER_RPC_LIBRARY_LOGS_H_
#define SLOTWISE_SERVER_RPC_LIBRARY_LOGS_H_

namespace slotwise {

// Logs the libraries' lines at level debug, even errors. The caller hears of such an error, or we log a
// sentence of our own about it; and any caller could make the libraries write any number of lines.
void SendLibraryLogsToOurs();

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_LIBRARY_LOGS_H_
