#include "server/rpc/row_streams.h"

#include <algorithm>
#include <string>
#include <utility>

#include "server/engine/operations/list_keys.h"
#include "server/engine/operations/read_rows.h"
#include "server/intake/audit_log.h"
#include "server/rpc/encode_rows.h"
#include "server/rpc/grpc_status.h"
#include "wire/hand_over.h"

namespace slotwise {
namespace {

// gRPC moves messages of about this size fastest.
constexpr std::size_t kMessageBytes = std::size_t{1} << 20;

}  // namespace

ExportStream* ExportStream::Begin(grpc::CallbackServerContext& context, const grpc::ByteBuffer& request,
                                  Engine& engine, WatchedGate& gate, ExportRoom& room) {
  const std::shared_ptr<ExportStream> stream(new ExportStream(context, engine, gate, room));
  stream->self_ = stream;
  HandOver(stream.get());
  if (Status status = gate.Enter(stream->caller_); !status.ok()) {
    stream->End(ToGrpc(status));
    return stream.get();
  }
  auto decoded = DecodeExport(request, TablesFor(engine, stream->caller_));
  if (!decoded.ok()) {
    stream->End(ToGrpc(decoded.status()));
    return stream.get();
  }
  stream->request_ = std::move(*decoded);
  if (stream->request_.keys) {
    const Status charged = stream->Reserve(stream->request_.keys->size());
    charged.ok() ? stream->StreamRowsOf(std::move(*stream->request_.keys)) : stream->Refuse(charged);
    return stream.get();
  }
  // Listing a large table's keys takes everybody's time, so an export that would be refused afterwards is
  // refused now.
  if (!stream->ReserveList()) return stream.get();
  if (const Status charged = stream->Reserve(0); !charged.ok()) {
    stream->Refuse(charged);
    return stream.get();
  }
  engine.Submit(ListKeysRequest{.table = stream->request_.table.id,
                                .done =
                                    [stream](Result<std::vector<Key>> keys) {
                                      if (!keys.ok()) return stream->Refuse(keys.status());
                                      stream->StreamRowsOf(std::move(*keys));
                                    },
                                .room = [stream](std::size_t keys) { return stream->Reserve(keys); },
                                .caller = stream->caller_});
  return stream.get();
}

bool ExportStream::ReserveList() {
  const std::scoped_lock lock(room_.mutex);
  std::optional<Reservation> list = room_.whole_tables.Reserve(1);
  if (!list) {
    Refuse(ResourceExhausted(
        "the server is busy: " + std::to_string(room_.whole_tables.used()) +
            " exports of whole tables are under way at this rank, the most at a time",
        room_.whole_tables_left.RetryAfter(Caller::Clock::now(), room_.whole_tables.used())));
    return false;
  }
  room_.whole_tables_left.Came(Caller::Clock::now(), room_.whole_tables.used() - 1, 1);
  list_ = std::move(*list);
  return true;
}

Status ExportStream::Reserve(std::size_t keys) {
  reservation_ = {};
  // A message exists twice while it is encoded.
  const std::size_t bytes = keys * sizeof(Key) + 2 * kMessageBytes;
  const std::scoped_lock lock(room_.mutex);
  std::optional<Reservation> reservation = room_.bytes.Reserve(bytes);
  if (!reservation) {
    return ResourceExhausted(
        "the server is busy: " + std::to_string(room_.bytes.used()) +
            " bytes of exports wait, and a quarter of limits.max_queue_mib leaves no room for " +
            std::to_string(bytes) + " more",
        room_.bytes_left.RetryAfter(Caller::Clock::now(), room_.bytes.used()));
  }
  room_.bytes_left.Came(Caller::Clock::now(), room_.bytes.used() - std::min(bytes, room_.bytes.used()),
                        bytes);
  reservation_ = std::move(*reservation);
  return {};
}

void ExportStream::StreamRowsOf(std::vector<Key> keys) {
  keys_ = std::move(keys);
  ReadOn();
}

void ExportStream::ReadOn() {
  if (caller_.gone()) return End(grpc::Status::CANCELLED);
  if (next_ == keys_.size()) return End(grpc::Status::OK);
  const TableOptions& table = request_.table.options;
  const std::size_t row = sizeof(Key) + sizeof(float) * std::size_t{RecordFloats(table)};
  const std::size_t count = std::min(keys_.size() - next_, std::max<std::size_t>(1, kMessageBytes / row));
  const auto first = keys_.begin() + static_cast<std::ptrdiff_t>(next_);
  next_ += count;
  engine_.Submit(ReadRowsRequest{.table = request_.table.id,
                                 .keys = {first, first + static_cast<std::ptrdiff_t>(count)},
                                 .done =
                                     [stream = self_](const Result<RowRecords>& rows) {
                                       if (!rows.ok()) return stream->Refuse(rows.status());
                                       stream->Write(*rows);
                                     },
                                 .caller = caller_,
                                 .generation = request_.table.generation});
}

void ExportStream::Write(const RowRecords& rows) {
  if (rows.keys.empty()) return ReadOn();  // the keys were erased meanwhile, or belong to other ranks
  const TableOptions& table = request_.table.options;
  const std::size_t floats = rows.records.size() / rows.keys.size();
  if (request_.with_state && floats != RecordFloats(table)) {
    return Refuse(FailedPrecondition("table " + table.name.str() +
                                     " was altered, and its rows have scores now, or have none any more: "
                                     "export them again")
                      .Because(Reason::kTableChanged));
  }
  message_ = EncodeExportReply(rows, table.dim, static_cast<std::uint32_t>(floats - table.dim),
                               request_.with_state, request_.table.generation);
  reply_.Begin();
  sent_ += rows.keys.size();
  StartWrite(&message_);
}

void ExportStream::OnWriteDone(bool ok) {
  reply_.End();
  if (!ok) return End(grpc::Status::CANCELLED);
  ReadOn();
}

void ExportStream::Refuse(const Status& status) {
  AddRetryAfter(status, context_);
  End(ToGrpc(status));
}

void ExportStream::End(const grpc::Status& status) {
  // The room is free before the caller hears of the stream's end.
  keys_ = std::vector<Key>();  // `= {}` would keep the memory
  reservation_ = {};
  list_ = {};
  reply_.Begin();
  Finish(status);
}

void ExportStream::OnCancel() {
  TakeOver(this);
  caller_.Leave();
  HandOver(this);
}

void ExportStream::OnDone() {
  reply_.End();
  TakeOver(this);
  if (sent_ > 0) {
    LogDeed(Deed::kTakesAlong,
            std::to_string(sent_) + " rows of table " + request_.table.options.name.str() + " are exported",
            caller_);
  }
  gate_.Leave();
  // `last` may be the last reference, and then destroys this object.
  const std::shared_ptr<ExportStream> last = std::move(self_);
}

ImportStream* ImportStream::Begin(grpc::CallbackServerContext& context, grpc::ByteBuffer* reply,
                                  Engine& engine, WatchedGate& gate) {
  const std::shared_ptr<ImportStream> stream(new ImportStream(context, reply, engine, gate));
  stream->self_ = stream;
  if (Status status = gate.Enter(stream->caller_); !status.ok()) {
    stream->End(ToGrpc(status));
  } else {
    stream->StartRead(&stream->message_);
  }
  return stream.get();
}

void ImportStream::OnReadDone(bool ok) {
  if (!ok) {  // the caller has sent all, or has gone and gets no reply
    *reply_ = EncodeImportReply(rows_, table_ ? table_->generation : 0);
    return End(grpc::Status::OK);
  }
  auto request = DecodeImport(message_, TablesFor(engine_, caller_), table_);
  message_.Clear();
  if (!request.ok()) return End(ToGrpc(request.status()));
  const std::uint64_t rows = request->batch.samples;
  request->caller = caller_;
  request->done = [stream = self_, rows](const Status& status) {
    if (!status.ok()) return stream->Refuse(status);
    stream->rows_ += rows;
    stream->StartRead(&stream->message_);
  };
  engine_.Submit(std::move(*request));
}

void ImportStream::Refuse(const Status& status) {
  AddRetryAfter(status, context_);
  End(ToGrpc(status));
}

void ImportStream::End(const grpc::Status& status) {
  reply_watch_.Begin();
  Finish(status);
}

void ImportStream::OnDone() {
  reply_watch_.End();
  if (rows_ > 0)
    LogDeed(Deed::kMakes,
            std::to_string(rows_) + " rows of table " + table_->options.name.str() + " are imported",
            caller_);
  gate_.Leave();
  const std::shared_ptr<ImportStream> last = std::move(self_);
}

}  // namespace slotwise
