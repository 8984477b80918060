// Reads a protobuf message from gRPC's byte buffer, and copies its large arrays straight to their
// destinations.
//
// A generated parser would copy every `bytes` field into a string, and the caller would copy the string to
// its destination: two copies of nearly the whole message. ReadMessage copies the named array fields once,
// and passes only the few bytes around the arrays to the generated parser. Protobuf's rules still hold:
// fields come in any order, unknown fields are ignored, the last value of a repeated scalar or array counts,
// and submessages that repeat are merged.
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

// The bytes of a message in gRPC's slices, which are not copied.
using MessageBytes = grpc::ByteBuffer;

// Names the destination of the array with a field number.
struct ArrayField {
  int number = 0;
  // Returns the destination of that many bytes; null: skips them. Called again if the field occurs again.
  std::function<void*(std::size_t)> make_room;
  // If set, make_room returns only whether the bytes are wanted, and this gets them as gRPC has them, in
  // consecutive pieces of any size.
  std::function<void(std::span<const std::byte>)> take_piece = {};
};

// Reads `bytes` into `message` and `arrays`. Never asks for more room than `bytes` has. INVALID_ARGUMENT:
// `bytes` are not a message of this type (cut short, a length past the end, not UTF-8). Accepts overlong
// tags, which protobuf's own parser refuses beyond 5 bytes.
Status ReadMessage(const grpc::ByteBuffer& bytes, std::span<const ArrayField> arrays,
                   google::protobuf::MessageLite& message);

}  // namespace slotwise

#endif  // SLOTWISE_WIRE_WIRE_READER_H_
