// Reads a protobuf message off gRPC's byte buffer, its large arrays straight into their last place.
//
// A generated parser would copy every `bytes` field into a string first, and the string to where it belongs: two copies
// of what is nearly the whole message. Here the named array fields are copied once, and only the few bytes around them
// go through the generated parser, which keeps protobuf's rules for them: any field order, unknown fields ignored,
// of a repeated scalar or array the last one counts, repeated submessages are merged.
// Thread-safety: free functions.
#ifndef SLOTWISE_WIRE_WIRE_READER_H_
#define SLOTWISE_WIRE_WIRE_READER_H_

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <functional>
#include <span>

#include "slotwise/status.h"

namespace slotwise {

// Which field number is which array.
struct ArrayField {
  int number = 0;
  // Where that many bytes shall go; null to skip them. Called again if the message holds the field again.
  std::function<void*(std::size_t)> make_room;
};

// Reads `bytes` into `message` and `arrays`. Never asks for more room than `bytes` holds.
// INVALID_ARGUMENT if `bytes` are not a message of this type: cut short, a length past the end, not UTF-8.
Status ReadMessage(const grpc::ByteBuffer& bytes, std::span<const ArrayField> arrays,
                   google::protobuf::MessageLite& message);

}  // namespace slotwise

#endif  // SLOTWISE_WIRE_WIRE_READER_H_
