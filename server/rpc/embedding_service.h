// Serves lookups and pushes: decodes requests, submits them to the engine, and encodes the results.
//
// All methods take and return raw byte buffers, so that arrays are copied once on the way in, and not at all
// on the way out. On the wire they are the plain messages of embedding.proto.
// Thread-safety: safe; gRPC calls it from many threads.
#ifndef SLOTWISE_SERVER_RPC_EMBEDDING_SERVICE_H_
#define SLOTWISE_SERVER_RPC_EMBEDDING_SERVICE_H_

#include <grpcpp/support/byte_buffer.h>

#include <chrono>
#include <cstdint>
#include <memory>

#include "server/engine/engine.h"
#include "server/intake/check.h"
#include "server/intake/embedding_calls.h"
#include "server/rpc/call.h"
#include "server/rpc/watched_gate.h"
#include "slotwise/v1/embedding.grpc.pb.h"

namespace slotwise {

class EmbeddingService final
    : public v1::Embedding::WithRawCallbackMethod_Lookup<
          v1::Embedding::WithRawCallbackMethod_Push<v1::Embedding::WithRawCallbackMethod_LookupMany<
              v1::Embedding::WithRawCallbackMethod_PushMany<v1::Embedding::Service>>>> {
 public:
  // `engine` and `gate` outlive the service.
  EmbeddingService(Engine& engine, WatchedGate& gate, std::chrono::milliseconds default_deadline);

  grpc::ServerUnaryReactor* Lookup(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* Push(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* LookupMany(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* PushMany(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* reply) override;

 private:
  // Begins a call that is counted.
  std::shared_ptr<Call> Begin(grpc::CallbackServerContext& context, CallKind kind) {
    return Call::Begin(context, gate_, default_deadline_, kind);
  }

  Engine& engine_;
  WatchedGate& gate_;
  const std::chrono::milliseconds default_deadline_;
};

// Encodes a v1.LookupReply. The buffer shares the values without a copy, and keeps them alive until gRPC has
// sent them. `instance` is the engine's. REQUIRES: answer.values.size = samples · width.
// Thread-safety: free functions.
grpc::ByteBuffer EncodeLookupReply(LookupAnswer answer, std::uint64_t instance);
// Encodes a v1.PushReply.
grpc::ByteBuffer EncodePushReply(const PushAnswer& answer, std::uint64_t instance);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_EMBEDDING_SERVICE_H_
