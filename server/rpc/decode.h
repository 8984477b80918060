// Decodes bytes from the wire to checked requests; no room past rpc sees an invalid batch.
//
// Errors name the field and the value. INVALID_ARGUMENT: the bytes are not a valid message, or a value can
// never be right. NOT_FOUND: there is no such table. RESOURCE_EXHAUSTED: no protobuf message can hold the
// lookup's reply.
// Thread-safety: free functions.
#ifndef SLOTWISE_SERVER_RPC_DECODE_H_
#define SLOTWISE_SERVER_RPC_DECODE_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>

#include "server/engine/request.h"
#include "server/rpc/decode_fields.h"
#include "slotwise/status.h"

namespace slotwise {

struct DecodedLookup {
  LookupRequest request;    // every field but `done`
  std::uint32_t width = 0;  // elements a sample: slots · dim
};

// Reads keys, weights and gradients into memory of `arrays`, if given: straight from gRPC's memory to where
// the device reads them.
Result<DecodedLookup> DecodeLookup(const grpc::ByteBuffer& bytes, const FindTable& find_table,
                                   ArrayPool* arrays = nullptr);

// Sets every field but `done`.
Result<PushRequest> DecodePush(const grpc::ByteBuffer& bytes, const FindTable& find_table,
                               ArrayPool* arrays = nullptr);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_DECODE_H_
