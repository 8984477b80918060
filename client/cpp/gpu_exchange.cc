#include "client/cpp/gpu_exchange.h"

#include <span>
#include <vector>

#include "wire/array_align.h"

namespace slotwise::client {
namespace {

// Adds an array to a body that is padded later, and returns the array's bytes.
std::uint64_t AddUnpadded(std::span<const std::byte> array, DataExchange::Body& body) {
  if (!array.empty()) body.push_back(array);
  return array.size();
}

}  // namespace

void GpuExchange::AddArrays(const Piece& piece, v1::DataArrays& bytes, Body& body) {
  if (piece.samples.size() == 0) return;  // the batch is whole in the table's first piece
  const TableBatch& table = TableOf(piece);
  bytes.set_keys(AddUnpadded(std::as_bytes(table.view.keys), body));
  if (batches_->pushes) {
    bytes.set_gradients(AddUnpadded({static_cast<const std::byte*>(batches_->gpu->gradients[piece.table]),
                                     NumbersOf(piece) * BytesOf(type_)},
                                    body));
  }
  const auto& offsets = table.view.offsets;
  const bool wide = batches_->gpu->wide[piece.table];
  const std::size_t each = wide ? sizeof(std::int64_t) : sizeof(std::uint32_t);
  bytes.set_offsets(
      AddUnpadded({reinterpret_cast<const std::byte*>(offsets.data()), offsets.size() * each}, body));
  bytes.set_wide_offsets(wide);
  bytes.set_weights(AddUnpadded(std::as_bytes(table.view.weights), body));
}

void GpuExchange::PlaceValues() {
  std::uint64_t at = 0;
  std::vector<GpuRows>& rows = batches_->gpu->rows;
  rows.clear();
  if (batches_->pushes) return;
  for (const Piece& piece : pieces()) {
    const std::uint64_t numbers = NumbersOf(piece);
    std::byte* const first = values_ == nullptr ? nullptr : values_.get() + at;
    rows.push_back({.values = std::shared_ptr<void>(values_, first), .size = numbers, .type = type_});
    at += PaddedBytes(numbers * BytesOf(type_));
  }
  values_.reset();
}

}  // namespace slotwise::client
