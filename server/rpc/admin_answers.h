// How the control path reads requests and writes replies.
// Thread-safety: free functions.
#ifndef SLOTWISE_SERVER_RPC_ADMIN_ANSWERS_H_
#define SLOTWISE_SERVER_RPC_ADMIN_ANSWERS_H_

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <optional>

#include "server/rpc/call.h"
#include "wire/wire_reader.h"

namespace slotwise {

// Parses a request, or answers the call INVALID_ARGUMENT and returns nothing.
template <class Message>
std::optional<Message> Parse(const grpc::ByteBuffer& bytes, Call& call) {
  Message message;
  if (const Status status = ReadMessage(bytes, {}, message); !status.ok()) {
    call.Fail(status);
    return std::nullopt;
  }
  return message;
}

inline void Answer(Call& call, const google::protobuf::MessageLite& message, grpc::ByteBuffer* reply) {
  const grpc::Slice slice(message.SerializeAsString());
  call.Succeed([&] { *reply = grpc::ByteBuffer(&slice, 1); });
}

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_ADMIN_ANSWERS_H_
