// The one place where Slotwise's statuses become gRPC's.
// Thread-safety: free functions.
#ifndef SLOTWISE_SERVER_RPC_GRPC_STATUS_H_
#define SLOTWISE_SERVER_RPC_GRPC_STATUS_H_

#include <grpcpp/support/status.h>

#include <string>
#include <string_view>

#include "slotwise/status.h"

namespace slotwise {

// The message is cut at 1 KiB: it travels in an HTTP/2 trailer, and peers refuse trailers past 8 KiB.
grpc::Status ToGrpc(const Status& status);

// `text` in quotes, for names that a caller sent: cut at 80 bytes, and those that are not printable ASCII as \x..
std::string Quoted(std::string_view text);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_GRPC_STATUS_H_
