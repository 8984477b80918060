// Reads a protobuf message off gRPC's byte buffer, its large arrays straight into their last place.
//
// A generated parser would copy every `bytes` field into a string first, and the string into the batch: two copies of
// what is nearly the whole message. Here the named array fields are copied once, and only the few bytes around them
// go through the generated parser, which keeps protobuf's rules for them: any field order, unknown fields ignored,
// of a repeated scalar or array the last one counts, repeated submessages are merged.
// Thread-safety: free functions; a WireArray belongs to one thread.
#ifndef SLOTWISE_SERVER_RPC_WIRE_READER_H_
#define SLOTWISE_SERVER_RPC_WIRE_READER_H_

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <functional>
#include <span>

#include "server/engine/request.h"
#include "slotwise/status.h"

namespace slotwise {

// A `bytes` field that is an array of T.
template <class T>
struct WireArray {
  HostArray<T> values;
  std::size_t bytes = 0;  // as sent; `values` holds them only if they are a whole number of T

  bool whole() const { return bytes % sizeof(T) == 0; }

  // Where `size` bytes off the wire shall go; null if they cannot be whole Ts.
  void* MakeRoom(std::size_t size) {
    bytes = size;
    values = HostArray<T>(whole() ? size / sizeof(T) : 0);
    return whole() ? values.data() : nullptr;
  }
};

// Which field number is which array. `make_room` is WireArray::MakeRoom, its type forgotten.
struct ArrayField {
  int number = 0;
  std::function<void*(std::size_t)> make_room;
};

template <class T>
ArrayField Into(int number, WireArray<T>& array) {
  return {number, [&array](std::size_t size) { return array.MakeRoom(size); }};
}

// Reads `bytes` into `message` and `arrays`. Never allocates more than `bytes` holds.
// INVALID_ARGUMENT if `bytes` are not a message of this type: cut short, a length past the end, not UTF-8.
Status ReadMessage(const grpc::ByteBuffer& bytes, std::span<const ArrayField> arrays,
                   google::protobuf::MessageLite& message);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_WIRE_READER_H_
