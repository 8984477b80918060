// The two streams of the Rows service move rows out of this rank, and rows into the table.
//
// Each stream does one thing at a time: a step of the engine, or a message on the wire. So a message or two
// bound its memory, and a slow caller slows only its own stream. A stream takes as long as its caller takes,
// and ends with the caller, with the server, or with the first refusal.
// Thread-safety: gRPC's threads and the engine's drive a stream by turns; nobody else touches it.
#ifndef SLOTWISE_SERVER_RPC_ROW_STREAMS_H_
#define SLOTWISE_SERVER_RPC_ROW_STREAMS_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "server/engine/engine.h"
#include "server/rpc/decode_rows.h"
#include "server/rpc/gate.h"
#include "slotwise/status.h"

namespace slotwise {

class ExportStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  // Enters `gate` and begins to stream. The stream keeps itself alive until gRPC is done with it. `engine`
  // and `gate` outlive the server.
  static ExportStream* Begin(const grpc::ByteBuffer& request, const FindTable& find_table, Engine& engine,
                             Gate& gate);

 private:
  ExportStream(Engine& engine, Gate& gate) : engine_(engine), gate_(gate) {}

  void ReadOn();
  void Write(const RowRecords& rows);
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  Engine& engine_;
  Gate& gate_;
  DecodedExport request_;
  std::vector<Key> keys_;
  std::size_t next_ = 0;  // index of the first key that is not read yet
  grpc::ByteBuffer message_;
  std::atomic<bool> cancelled_{false};
  std::shared_ptr<ExportStream> self_;  // keeps the stream alive until gRPC is done with it
};

class ImportStream final : public grpc::ServerReadReactor<grpc::ByteBuffer> {
 public:
  // As ExportStream::Begin. The stream writes a v1.ImportReply to `reply`.
  static ImportStream* Begin(grpc::ByteBuffer* reply, const FindTable& find_table, Engine& engine,
                             Gate& gate);

 private:
  ImportStream(grpc::ByteBuffer* reply, const FindTable& find_table, Engine& engine, Gate& gate)
      : reply_(reply), find_table_(find_table), engine_(engine), gate_(gate) {}

  void OnReadDone(bool ok) override;
  void OnDone() override;

  grpc::ByteBuffer* reply_;
  const FindTable& find_table_;
  Engine& engine_;
  Gate& gate_;
  std::optional<TableInfo> table_;
  std::uint64_t rows_ = 0;
  grpc::ByteBuffer message_;
  std::shared_ptr<ImportStream> self_;  // keeps the stream alive until gRPC is done with it
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_ROW_STREAMS_H_
