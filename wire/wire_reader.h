// Reads a protobuf message from gRPC's byte buffer, and copies its large arrays straight to their
// destinations.
//
// A generated parser would copy every `bytes` field into a string first, and the caller would copy the string
// to its destination: two copies of nearly the whole message. ReadMessage copies the named array fields once,
// and only the few bytes around the arrays go through the generated parser. Protobuf's rules still hold:
// fields come in any order, unknown fields are ignored, the last one counts of a scalar or array that
// repeats, and submessages that repeat are merged.
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

// The bytes of a message, as gRPC has them: in slices, of which none is copied.
using MessageBytes = grpc::ByteBuffer;

// Says where the array with a field number goes.
struct ArrayField {
  int number = 0;
  // Returns where that many bytes go, or null to skip them. Called again if the message holds the field
  // again.
  std::function<void*(std::size_t)> make_room;
  // If set, make_room returns only whether the bytes are wanted. They are read where gRPC has them, in pieces
  // of any size that follow each other.
  std::function<void(std::span<const std::byte>)> take_piece = {};
};

// Reads `bytes` into `message` and `arrays`. Never asks for more room than `bytes` hold.
// Returns INVALID_ARGUMENT if `bytes` are not a message of this type: cut short, a length past the end, not
// UTF-8. Takes tags that are longer than they have to be, which protobuf's own parser refuses beyond 5 bytes.
Status ReadMessage(const grpc::ByteBuffer& bytes, std::span<const ArrayField> arrays,
                   google::protobuf::MessageLite& message);

}  // namespace slotwise

#endif  // SLOTWISE_WIRE_WIRE_READER_H_
