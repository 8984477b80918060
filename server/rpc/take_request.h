// TakeRequest lets the bytes of a request go as soon as they are decoded.
// Thread-safety: a free function.
#ifndef SLOTWISE_SERVER_RPC_TAKE_REQUEST_H_
#define SLOTWISE_SERVER_RPC_TAKE_REQUEST_H_

#include <grpcpp/support/byte_buffer.h>

namespace slotwise {

// Returns the bytes of a call's request, which gRPC would keep until the call is over, and leaves gRPC none.
// The buffer is const only because gRPC's interface is one for messages of all kinds: gRPC made it for this
// call, and does not look at it again.
inline grpc::ByteBuffer TakeRequest(const grpc::ByteBuffer* request) {
  grpc::ByteBuffer taken;
  taken.Swap(const_cast<grpc::ByteBuffer*>(request));
  return taken;
}

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_TAKE_REQUEST_H_
