#include "server/rpc/embedding_service.h"

#include <cstdint>
#include <string_view>
#include <utility>

#include "server/rpc/call.h"
#include "server/rpc/encode.h"

namespace slotwise {

EmbeddingService::EmbeddingService(Engine& engine, Gate& gate, std::chrono::milliseconds default_deadline)
    : engine_(engine),
      gate_(gate),
      find_table_([&engine](std::string_view name) { return engine.FindTable(name); }),
      default_deadline_(default_deadline) {}

grpc::ServerUnaryReactor* EmbeddingService::Lookup(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request, grpc::ByteBuffer* reply) {
  auto call = Call::Begin(*context, gate_, default_deadline_);
  grpc::ServerUnaryReactor* reactor = call.get();
  if (call->answered()) return reactor;
  auto decoded = DecodeLookup(*request, find_table_);
  if (!decoded.ok()) {
    call->Fail(decoded.status());
    return reactor;
  }
  const std::uint32_t samples = decoded->request.batch.samples;
  const std::uint32_t width = decoded->width;
  decoded->request.done = [call = std::move(call), reply, samples, width](Result<PooledValues> values) {
    if (!values.ok()) return call->Fail(values.status());
    call->Succeed([&] { *reply = EncodeLookupReply(samples, width, std::move(*values)); });
  };
  engine_.Submit(std::move(decoded->request));
  return reactor;
}

grpc::ServerUnaryReactor* EmbeddingService::Push(grpc::CallbackServerContext* context,
                                                 const grpc::ByteBuffer* request, grpc::ByteBuffer* reply) {
  auto call = Call::Begin(*context, gate_, default_deadline_);
  grpc::ServerUnaryReactor* reactor = call.get();
  if (call->answered()) return reactor;
  auto decoded = DecodePush(*request, find_table_);
  if (!decoded.ok()) {
    call->Fail(decoded.status());
    return reactor;
  }
  decoded->done = [call = std::move(call), reply](Result<std::uint64_t> table_step) {
    if (!table_step.ok()) return call->Fail(table_step.status());
    call->Succeed([&] { *reply = EncodePushReply(*table_step); });
  };
  engine_.Submit(std::move(*decoded));
  return reactor;
}

}  // namespace slotwise
