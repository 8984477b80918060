#include "server/rpc/rows_service.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "server/intake/audit_log.h"
#include "server/rpc/call.h"
#include "server/rpc/encode_rows.h"
#include "server/rpc/row_streams.h"
#include "server/rpc/take_request.h"

namespace slotwise {

RowsService::RowsService(Engine& engine, WatchedGate& gate, std::uint64_t max_export_bytes,
                         std::chrono::milliseconds default_deadline)
    : engine_(engine), gate_(gate), exports_(max_export_bytes), default_deadline_(default_deadline) {}

grpc::ServerWriteReactor<grpc::ByteBuffer>* RowsService::Export(grpc::CallbackServerContext* context,
                                                                const grpc::ByteBuffer* request) {
  return ExportStream::Begin(*context, TakeRequest(request), engine_, gate_, exports_);
}

grpc::ServerReadReactor<grpc::ByteBuffer>* RowsService::Import(grpc::CallbackServerContext* context,
                                                               grpc::ByteBuffer* reply) {
  return ImportStream::Begin(*context, reply, engine_, gate_);
}

grpc::ServerUnaryReactor* RowsService::Erase(grpc::CallbackServerContext* context,
                                             const grpc::ByteBuffer* request, grpc::ByteBuffer* reply) {
  auto call = Call::Begin(*context, gate_, default_deadline_);
  grpc::ServerUnaryReactor* reactor = call.get();
  if (call->answered()) return reactor;
  std::string table;
  const auto find_table = [&, found = TablesFor(engine_, call->caller())](std::string_view name,
                                                                          Rights needs) {
    table = name;
    return found(name, needs);
  };
  auto decoded = DecodeErase(TakeRequest(request), find_table);
  if (!decoded.ok()) {
    call->Fail(decoded.status());
    return reactor;
  }
  decoded->caller = call->caller();
  decoded->done = [call = std::move(call), reply, table = std::move(table),
                   caller = decoded->caller](const Result<std::uint64_t>& rows) {
    if (!rows.ok()) return call->Fail(rows.status());
    LogDeed(Deed::kTakesAway, std::to_string(*rows) + " rows of table " + table + " are erased", caller);
    call->Succeed([&] { *reply = EncodeEraseReply(*rows); });
  };
  engine_.Submit(std::move(*decoded));
  return reactor;
}

}  // namespace slotwise
