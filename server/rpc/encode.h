// Replies to bytes. The values of a lookup are not copied: gRPC sends them from where the round left them.
// Thread-safety: free functions.
#ifndef SLOTWISE_SERVER_RPC_ENCODE_H_
#define SLOTWISE_SERVER_RPC_ENCODE_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>

#include "server/engine/request.h"

namespace slotwise {

// A v1.LookupReply. The buffer keeps `values` alive until gRPC has sent it.
// REQUIRES: values.size = samples · width.
grpc::ByteBuffer EncodeLookupReply(std::uint32_t samples, std::uint32_t width, PooledValues values);

// A v1.PushReply.
grpc::ByteBuffer EncodePushReply(std::uint64_t table_step);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_ENCODE_H_
