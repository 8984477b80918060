#include "client/cpp/gpu_exchange.h"

#include <span>
#include <string>

#include "client/cpp/messages.h"
#include "wire/array_align.h"

namespace slotwise::client {
namespace {

// Adds an array to a body whose owner pads it, and returns its bytes.
std::uint64_t Add(std::span<const std::byte> array, DataExchange::Body& body) {
  if (!array.empty()) body.push_back(array);
  return array.size();
}

}  // namespace

void GpuExchange::Write(v1::DataCall& call, Body& body) {
  call.set_many(batches_->many());
  for (const Piece& piece : pieces()) {
    const TableBatch& table = batches_->tables[piece.table];
    messages_->AddTo(call, table, piece);
    v1::DataArrays& bytes = *call.add_arrays();
    if (piece.samples.size() == 0) continue;  // the batch is whole in the table's first piece
    bytes.set_keys(Add(std::as_bytes(table.view.keys), body));
    if (batches_->pushes) {
      bytes.set_gradients(Add({static_cast<const std::byte*>(batches_->gpu->gradients[piece.table]),
                               NumbersOf(piece) * BytesOf(type_)},
                              body));
    }
    const auto& offsets = table.view.offsets;
    const bool wide = batches_->gpu->wide[piece.table];
    const std::size_t each = wide ? sizeof(std::int64_t) : sizeof(std::uint32_t);
    bytes.set_offsets(Add({reinterpret_cast<const std::byte*>(offsets.data()), offsets.size() * each}, body));
    bytes.set_wide_offsets(wide);
    bytes.set_weights(Add(std::as_bytes(table.view.weights), body));
  }
}

Result<DataExchange::Room> GpuExchange::MakeRoom(const v1::DataReply& reply) {
  if (Status status = CheckReplyCounts(reply, *batches_, pieces().size()); !status.ok()) return status;
  for (int i = 0; i < reply.lookups_size(); ++i) {
    const Piece& piece = pieces()[static_cast<std::size_t>(i)];
    if (Status status = CheckReplyShape(reply.lookups(i), reply.value_bytes(i), piece.samples.size(),
                                        batches_->tables[piece.table].checked.width, type_, NumbersOf(piece));
        !status.ok()) {
      return status;
    }
  }
  return Room();
}

std::uint64_t GpuExchange::ValueBytes() const {
  std::uint64_t bytes = 0;
  if (batches_->pushes) return bytes;
  for (const Piece& piece : pieces()) bytes += PaddedBytes(NumbersOf(piece) * BytesOf(type_));
  return bytes;
}

Status GpuExchange::Read(const v1::DataReply& reply) {
  std::uint64_t at = 0;
  std::vector<GpuRows>& rows = batches_->gpu->rows;
  rows.clear();
  if (!batches_->pushes) {
    for (const Piece& piece : pieces()) {
      const std::uint64_t numbers = NumbersOf(piece);
      std::byte* const first = values_ == nullptr ? nullptr : values_.get() + at;
      rows.push_back({.values = std::shared_ptr<void>(values_, first), .size = numbers, .type = type_});
      at += PaddedBytes(numbers * BytesOf(type_));
    }
    values_.reset();
  }
  return messages_->Read(0, reply);
}

}  // namespace slotwise::client
