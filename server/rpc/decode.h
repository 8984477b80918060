// Decodes bytes from the wire to checked requests.
//
// Errors name the field and the value. INVALID_ARGUMENT: the bytes are not a valid message. Others as
// intake/check.h says.
// Thread-safety: free functions.
#ifndef SLOTWISE_SERVER_RPC_DECODE_H_
#define SLOTWISE_SERVER_RPC_DECODE_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>

#include "server/engine/operations/push.h"
#include "server/intake/check.h"
#include "slotwise/status.h"

namespace slotwise {

// Reads keys, weights and gradients into memory of `arrays`, if given: straight from gRPC's memory to where
// the device reads them.
Result<CheckedLookup> DecodeLookup(const grpc::ByteBuffer& bytes, const FindTable& find_table,
                                   ArrayPool* arrays = nullptr);

// Sets every field but `done`.
Result<PushRequest> DecodePush(const grpc::ByteBuffer& bytes, const FindTable& find_table,
                               ArrayPool* arrays = nullptr);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_DECODE_H_
