// Bytes off the wire to a checked request: nothing past here sees an invalid batch.
//
// Errors name the field and the value. INVALID_ARGUMENT: not a valid message, or a value that can never be right.
// NOT_FOUND: no such table. RESOURCE_EXHAUSTED: a lookup whose reply no protobuf message can hold.
// Thread-safety: free functions.
#ifndef SLOTWISE_SERVER_RPC_DECODE_H_
#define SLOTWISE_SERVER_RPC_DECODE_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>

#include "server/engine/request.h"
#include "server/rpc/decode_fields.h"
#include "slotwise/data_type.h"
#include "slotwise/status.h"

namespace slotwise {

struct DecodedLookup {
  LookupRequest request;                    // all but `done`
  std::uint32_t width = 0;                  // elements a sample: slots · dim
  DataType data_type = DataType::kFloat32;  // of the reply
};

// Keys, weights and gradients are read into `arrays`' memory, if it is there: straight from gRPC's to where the device reads
// them.
Result<DecodedLookup> DecodeLookup(const grpc::ByteBuffer& bytes, const FindTable& find_table,
                                   ArrayPool* arrays = nullptr);

// All but `done`.
Result<PushRequest> DecodePush(const grpc::ByteBuffer& bytes, const FindTable& find_table,
                               ArrayPool* arrays = nullptr);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_DECODE_H_
