// TakeRequest lets a request's bytes be freed as soon as they are decoded.
// Thread-safety: a free function.
#ifndef SLOTWISE_SERVER_RPC_TAKE_REQUEST_H_
#define SLOTWISE_SERVER_RPC_TAKE_REQUEST_H_

#include <grpcpp/support/byte_buffer.h>

namespace slotwise {

// Takes the bytes of a call's request, which gRPC would keep until the call is over, out of gRPC's buffer.
// The buffer is const only because gRPC's interface is for messages of all kinds. gRPC made it for this call,
// and does not read it again.
inline grpc::ByteBuffer TakeRequest(const grpc::ByteBuffer* request) {
  grpc::ByteBuffer taken;
  taken.Swap(const_cast<grpc::ByteBuffer*>(request));
  return taken;
}

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_TAKE_REQUEST_H_
