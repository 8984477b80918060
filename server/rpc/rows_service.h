// Serves rows by key: export, import, erase.
// Thread-safety: safe; gRPC calls it from many threads.
#ifndef SLOTWISE_SERVER_RPC_ROWS_SERVICE_H_
#define SLOTWISE_SERVER_RPC_ROWS_SERVICE_H_

#include <chrono>
#include <cstdint>

#include "server/engine/engine.h"
#include "server/rpc/decode_rows.h"
#include "server/rpc/row_streams.h"
#include "server/rpc/watched_gate.h"
#include "slotwise/v1/rows.grpc.pb.h"

namespace slotwise {

class RowsService final
    : public v1::Rows::WithRawCallbackMethod_Export<
          v1::Rows::WithRawCallbackMethod_Import<v1::Rows::WithRawCallbackMethod_Erase<v1::Rows::Service>>> {
 public:
  // `engine` and `gate` outlive the service. Exports take at most `max_export_bytes` together, except that a
  // single export may take more.
  RowsService(Engine& engine, WatchedGate& gate, std::uint64_t max_export_bytes,
              std::chrono::milliseconds default_deadline);

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Export(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request) override;
  grpc::ServerReadReactor<grpc::ByteBuffer>* Import(grpc::CallbackServerContext* context,
                                                    grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* Erase(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* reply) override;

 private:
  Engine& engine_;
  WatchedGate& gate_;
  ExportRoom exports_;
  const std::chrono::milliseconds default_deadline_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_ROWS_SERVICE_H_
