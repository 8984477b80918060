#include "server/rpc/row_streams.h"

#include <algorithm>
#include <utility>

#include "server/rpc/encode.h"
#include "server/rpc/grpc_status.h"
#include "wire/hand_over.h"

namespace slotwise {
namespace {

// gRPC moves messages of about this size fastest.
constexpr std::size_t kMessageBytes = std::size_t{1} << 20;

}  // namespace

ExportStream* ExportStream::Begin(const grpc::ByteBuffer& request, const FindTable& find_table,
                                  Engine& engine, Gate& gate) {
  const std::shared_ptr<ExportStream> stream(new ExportStream(engine, gate));
  stream->self_ = stream;
  HandOver(stream.get());
  if (Status status = gate.Enter(); !status.ok()) {
    stream->Finish(ToGrpc(status));
    return stream.get();
  }
  auto decoded = DecodeExport(request, find_table);
  if (!decoded.ok()) {
    stream->Finish(ToGrpc(decoded.status()));
    return stream.get();
  }
  stream->request_ = std::move(*decoded);
  if (stream->request_.keys) {
    stream->keys_ = std::move(*stream->request_.keys);
    stream->ReadOn();
    return stream.get();
  }
  engine.Submit(
      ListKeysRequest{.table = stream->request_.table.id, .done = [stream](Result<std::vector<Key>> keys) {
                        if (!keys.ok()) return stream->Finish(ToGrpc(keys.status()));
                        stream->keys_ = std::move(*keys);
                        stream->ReadOn();
                      }});
  return stream.get();
}

void ExportStream::ReadOn() {
  if (cancelled_) return Finish(grpc::Status::CANCELLED);
  if (next_ == keys_.size()) return Finish(grpc::Status::OK);
  const TableOptions& table = request_.table.options;
  const std::size_t row =
      sizeof(Key) + sizeof(float) * (std::size_t{table.dim} + StateFloats(table.optimizer.kind, table.dim));
  const std::size_t count = std::min(keys_.size() - next_, std::max<std::size_t>(1, kMessageBytes / row));
  const auto first = keys_.begin() + static_cast<std::ptrdiff_t>(next_);
  next_ += count;
  engine_.Submit(ReadRowsRequest{.table = request_.table.id,
                                 .keys = {first, first + static_cast<std::ptrdiff_t>(count)},
                                 .done = [stream = self_](const Result<RowRecords>& rows) {
                                   if (!rows.ok()) return stream->Finish(ToGrpc(rows.status()));
                                   stream->Write(*rows);
                                 }});
}

void ExportStream::Write(const RowRecords& rows) {
  if (rows.keys.empty()) return ReadOn();  // the keys were erased meanwhile, or belong to other ranks
  const TableOptions& table = request_.table.options;
  message_ =
      EncodeExportReply(rows, table.dim, StateFloats(table.optimizer.kind, table.dim), request_.with_state);
  StartWrite(&message_);
}

void ExportStream::OnWriteDone(bool ok) {
  if (!ok) return Finish(grpc::Status::CANCELLED);
  ReadOn();
}

void ExportStream::OnCancel() {
  TakeOver(this);
  cancelled_ = true;
  HandOver(this);
}

void ExportStream::OnDone() {
  TakeOver(this);
  gate_.Leave();
  // `last` may be the last reference, and then destroys this object.
  const std::shared_ptr<ExportStream> last = std::move(self_);
}

ImportStream* ImportStream::Begin(grpc::ByteBuffer* reply, const FindTable& find_table, Engine& engine,
                                  Gate& gate) {
  const std::shared_ptr<ImportStream> stream(new ImportStream(reply, find_table, engine, gate));
  stream->self_ = stream;
  if (Status status = gate.Enter(); !status.ok()) {
    stream->Finish(ToGrpc(status));
  } else {
    stream->StartRead(&stream->message_);
  }
  return stream.get();
}

void ImportStream::OnReadDone(bool ok) {
  if (!ok) {  // the caller has sent everything, or is gone and gets no reply
    *reply_ = EncodeImportReply(rows_);
    return Finish(grpc::Status::OK);
  }
  auto request = DecodeImport(message_, find_table_, table_);
  if (!request.ok()) return Finish(ToGrpc(request.status()));
  const std::uint64_t rows = request->batch.samples;
  request->done = [stream = self_, rows](const Status& status) {
    if (!status.ok()) return stream->Finish(ToGrpc(status));
    stream->rows_ += rows;
    stream->StartRead(&stream->message_);
  };
  engine_.Submit(std::move(*request));
}

void ImportStream::OnDone() {
  gate_.Leave();
  const std::shared_ptr<ImportStream> last = std::move(self_);
}

}  // namespace slotwise
