// Bytes off the wire to a checked request: nothing past here sees an invalid batch.
//
// Errors name the field and the value. INVALID_ARGUMENT: not a valid message, or a value that can never be right.
// NOT_FOUND: no such table. RESOURCE_EXHAUSTED: a lookup whose reply no protobuf message can hold.
// Thread-safety: free functions.
#ifndef SLOTWISE_SERVER_RPC_DECODE_H_
#define SLOTWISE_SERVER_RPC_DECODE_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "server/engine/engine.h"
#include "server/engine/request.h"
#include "slotwise/status.h"

namespace slotwise {

// Engine::FindTable, or a test's own.
using FindTable = std::function<std::optional<TableInfo>(std::string_view)>;

struct DecodedLookup {
  LookupRequest request;    // all but `done`
  std::uint32_t width = 0;  // elements a sample: slots · dim
};

Result<DecodedLookup> DecodeLookup(const grpc::ByteBuffer& bytes, const FindTable& find_table);

// All but `done`.
Result<PushRequest> DecodePush(const grpc::ByteBuffer& bytes, const FindTable& find_table);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_DECODE_H_
