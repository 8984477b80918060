#include "server/rpc/encode_rows.h"

#include <grpc/slice.h>
#include <grpcpp/support/slice.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "slotwise/v1/rows.pb.h"
#include "wire/wire_writer.h"

namespace slotwise {
namespace {

grpc::ByteBuffer Serialized(const google::protobuf::MessageLite& message) {
  const grpc::Slice bytes(message.SerializeAsString());
  return {&bytes, 1};
}

// Returns a slice of `size` bytes, and a pointer to write them by.
std::pair<grpc::Slice, std::byte*> NewSlice(std::size_t size) {
  // A small slice may hold its bytes inside the grpc_slice itself.
  grpc_slice slice = grpc_slice_malloc_large(size);
  auto* bytes = reinterpret_cast<std::byte*>(GRPC_SLICE_START_PTR(slice));
  return {grpc::Slice(slice, grpc::Slice::STEAL_REF), bytes};
}

// Copies columns [first, first + count) of the records, row by row.
grpc::Slice Columns(const RowRecords& rows, std::size_t stride, std::size_t first, std::size_t count) {
  auto [slice, bytes] = NewSlice(rows.keys.size() * count * sizeof(float));
  for (std::size_t row = 0; row < rows.keys.size(); ++row) {
    std::memcpy(bytes + row * count * sizeof(float), &rows.records[row * stride + first],
                count * sizeof(float));
  }
  return slice;
}

}  // namespace

grpc::ByteBuffer EncodeImportReply(std::uint64_t rows, std::uint64_t generation) {
  v1::ImportReply reply;
  reply.set_rows(rows);
  reply.set_lineage(generation);
  return Serialized(reply);
}

grpc::ByteBuffer EncodeEraseReply(std::uint64_t rows) {
  v1::EraseReply reply;
  reply.set_rows(rows);
  return Serialized(reply);
}

grpc::ByteBuffer EncodeExportReply(const RowRecords& rows, std::uint32_t dim, std::uint32_t state_size,
                                   bool with_state, std::uint64_t generation) {
  const std::size_t stride = std::size_t{dim} + state_size;
  const std::size_t state = with_state ? state_size : 0;
  v1::ExportReply reply;
  reply.set_dim(dim);
  reply.set_state_size(static_cast<std::uint32_t>(state));
  reply.set_lineage(generation);
  std::string header = reply.SerializeAsString();

  std::vector<grpc::Slice> slices;
  const auto add = [&](int field, grpc::Slice array) {
    AppendArrayHeader(field, array.size(), header);
    slices.emplace_back(std::exchange(header, {}));
    slices.push_back(std::move(array));
  };
  add(v1::ExportReply::kKeysFieldNumber, {rows.keys.data(), rows.keys.size() * sizeof(Key)});
  add(v1::ExportReply::kValuesFieldNumber, Columns(rows, stride, 0, dim));
  if (state > 0) add(v1::ExportReply::kStateFieldNumber, Columns(rows, stride, dim, state));
  return {slices.data(), slices.size()};
}

}  // namespace slotwise
