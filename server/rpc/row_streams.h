// The two streams of the Rows service move rows out of this rank, and rows into the table.
//
// Each stream does one thing at a time: a step of the engine, or a message on the wire. So its memory is
// limited to a message or two, and an export's list of keys, and a slow caller slows only its own stream. A
// stream ends when its caller leaves, the server stops, a message is refused, or the caller does not read a
// message in time.
// Thread-safety: gRPC's threads and the engine's drive a stream in turn; no other thread touches it.
#ifndef SLOTWISE_SERVER_RPC_ROW_STREAMS_H_
#define SLOTWISE_SERVER_RPC_ROW_STREAMS_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "server/engine/budget.h"
#include "server/engine/engine.h"
#include "server/engine/schedule/drain_meter.h"
#include "server/rpc/caller_of.h"
#include "server/rpc/decode_rows.h"
#include "server/rpc/reply_watch.h"
#include "server/rpc/watched_gate.h"
#include "slotwise/status.h"

namespace slotwise {

// The limits on a rank's exports together. A single export may exceed them.
struct ExportRoom {
  // Listing the keys of a table, and keeping the list, takes time and memory from others.
  static constexpr std::uint64_t kWholeTables = 4;

  explicit ExportRoom(std::uint64_t max_bytes) : bytes(max_bytes) {}
  Budget bytes;  // for lists of keys and for messages
  Budget whole_tables{kWholeTables};
  std::mutex mutex;
  // Guarded by mutex:
  DrainMeter bytes_left;
  DrainMeter whole_tables_left;
};

class ExportStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  // Enters `gate` and begins to stream. The stream owns itself until gRPC is done with it. `engine` and
  // `gate` outlive the server. The stream is charged to `room`.
  static ExportStream* Begin(grpc::CallbackServerContext& context, const grpc::ByteBuffer& request,
                             Engine& engine, WatchedGate& gate, ExportRoom& room);

 private:
  ExportStream(grpc::CallbackServerContext& context, Engine& engine, WatchedGate& gate, ExportRoom& room)
      : engine_(engine),
        gate_(gate),
        room_(room),
        context_(context),
        caller_(CallerOf(context, gate)),
        reply_(gate.replies(), context, caller_) {}

  // Counts this as an export of a whole table. Ends the stream, and returns false, if there are too many.
  bool ReserveList();
  // Charges two messages and `keys` keys, in the place of the previous charge. RESOURCE_EXHAUSTED: there is
  // no room.
  Status Reserve(std::size_t keys);
  // REQUIRES: the keys are charged.
  void StreamRowsOf(std::vector<Key> keys);
  void ReadOn();
  void End(const grpc::Status& status);
  void Refuse(const Status& status);
  void Write(const RowRecords& rows);
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  Engine& engine_;
  WatchedGate& gate_;
  ExportRoom& room_;
  grpc::CallbackServerContext& context_;  // gRPC keeps it until it is done with the stream
  const Caller caller_;
  ReplyWatch::Reply reply_;
  Reservation reservation_;
  Reservation list_;
  DecodedExport request_;
  std::vector<Key> keys_;
  std::size_t next_ = 0;    // index of the first key that is not read yet
  std::uint64_t sent_ = 0;  // rows
  grpc::ByteBuffer message_;
  std::shared_ptr<ExportStream> self_;  // keeps the stream alive until gRPC is done with it
};

class ImportStream final : public grpc::ServerReadReactor<grpc::ByteBuffer> {
 public:
  // The same as ExportStream::Begin. The stream writes a v1.ImportReply to `reply`.
  static ImportStream* Begin(grpc::CallbackServerContext& context, grpc::ByteBuffer* reply, Engine& engine,
                             WatchedGate& gate);

 private:
  ImportStream(grpc::CallbackServerContext& context, grpc::ByteBuffer* reply, Engine& engine,
               WatchedGate& gate)
      : reply_(reply),
        engine_(engine),
        gate_(gate),
        context_(context),
        caller_(CallerOf(context, gate)),
        reply_watch_(gate.replies(), context, caller_) {}

  void End(const grpc::Status& status);
  void Refuse(const Status& status);

  void OnReadDone(bool ok) override;
  void OnDone() override;

  grpc::ByteBuffer* reply_;
  Engine& engine_;
  WatchedGate& gate_;
  grpc::CallbackServerContext& context_;  // gRPC keeps it until it is done with the stream
  const Caller caller_;
  ReplyWatch::Reply reply_watch_;
  std::optional<TableInfo> table_;
  std::uint64_t rows_ = 0;
  grpc::ByteBuffer message_;
  std::shared_ptr<ImportStream> self_;  // keeps the stream alive until gRPC is done with it
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_ROW_STREAMS_H_
