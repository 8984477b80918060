#include "server/rpc/decode_rows.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "server/intake/decode_fields.h"
#include "server/intake/quoted.h"
#include "server/intake/wire_array.h"
#include "server/rpc/grpc_status.h"
#include "slotwise/v1/rows.pb.h"

namespace slotwise {
namespace {

constexpr std::uint64_t kMostTableSteps = std::uint64_t{1} << 62;

// Makes a part whose bags have one key each.
Result<BatchPart> PartOf(WireArray<Key> keys) {
  if (Status status = CheckWhole("keys", keys); !status.ok()) return status;
  const std::size_t count = keys.values.size();
  if (count >= std::numeric_limits<std::uint32_t>::max()) {
    return InvalidArgument("keys has " + std::to_string(count) + " keys, and a batch has at most 4294967294");
  }
  BatchPart part;
  part.samples = static_cast<std::uint32_t>(count);
  part.keys = std::move(keys.values);
  part.offsets = UnitOffsets(count);
  return part;
}

Status CheckSize(std::string_view field, const WireArray<float>& array, std::size_t keys,
                 std::size_t columns) {
  const std::size_t expected = keys * columns * sizeof(float);
  if (array.bytes == expected) return {};
  return InvalidArgument(std::string(field) + " has " + std::to_string(array.bytes) + " bytes, but " +
                         std::to_string(keys) + " keys x " + std::to_string(columns) + " floats are " +
                         std::to_string(expected));
}

// Refuses a negative sum of squares: no step can make one, and the next step would take its square root.
Status CheckSquares(std::span<const float> state, std::uint32_t columns, std::uint32_t begin) {
  for (std::size_t i = 0; i < state.size(); ++i) {
    if (i % columns < begin || !(state[i] < 0)) continue;
    return InvalidArgument("state[" + std::to_string(i) + "] is " + std::to_string(state[i]) + " (row " +
                           std::to_string(i / columns) + "): a sum or mean of squares must not be negative");
  }
  return {};
}

// Joins the arrays row by row: a row's values, then its state.
BatchArray<float> Interleave(std::span<const float> values, std::size_t dim, std::span<const float> state,
                             std::size_t state_size) {
  BatchArray<float> records(values.size() + state.size());
  float* out = records.data();
  for (std::size_t row = 0; row * dim < values.size(); ++row) {
    out = std::copy_n(&values[row * dim], dim, out);
    out = std::copy_n(&state[row * state_size], state_size, out);
  }
  return records;
}

// Sets the stream's table, or checks that a later message names the same table.
Status AgreeOnTable(const std::string& name, const FindTable& find_table, std::optional<TableInfo>& table) {
  if (!table) {
    const auto named = find_table(name, Rights::kRows);
    if (named.ok()) table = *named;
    return named.status();
  }
  if (name.empty() || name == table->options.name.view()) return {};
  return InvalidArgument("table is " + Quoted(name) + ", but the stream's first message named " +
                         Quoted(table->options.name.view()));
}

}  // namespace

Result<DecodedExport> DecodeExport(const grpc::ByteBuffer& bytes, const FindTable& find_table) {
  v1::ExportRequest message;
  WireArray<Key> keys;
  const std::array arrays{ReadInto(v1::ExportRequest::kKeysFieldNumber, keys)};
  if (Status status = ReadMessage(bytes, arrays, message); !status.ok()) return status;
  auto table = find_table(message.table(), Rights::kRows);
  if (!table.ok()) return table.status();
  if (Status status = CheckWhole("keys", keys); !status.ok()) return status;

  DecodedExport decoded{.table = *table, .with_state = message.with_state(), .keys = std::nullopt};
  const auto wanted = keys.values.span();
  if (!wanted.empty()) decoded.keys.emplace(wanted.begin(), wanted.end());
  return decoded;
}

Result<EraseRequest> DecodeErase(const grpc::ByteBuffer& bytes, const FindTable& find_table) {
  v1::EraseRequest message;
  WireArray<Key> keys;
  const std::array arrays{ReadInto(v1::EraseRequest::kKeysFieldNumber, keys)};
  if (Status status = ReadMessage(bytes, arrays, message); !status.ok()) return status;
  auto table = find_table(message.table(), Rights::kRows);
  if (!table.ok()) return table.status();
  auto batch = PartOf(std::move(keys));
  if (!batch.ok()) return batch.status();
  return EraseRequest{.table = table->id, .batch = std::move(*batch), .done = {}};
}

Result<ImportRequest> DecodeImport(const grpc::ByteBuffer& bytes, const FindTable& find_table,
                                   std::optional<TableInfo>& table) {
  v1::ImportRequest message;
  WireArray<Key> keys;
  WireArray<float> values;
  WireArray<float> state;
  const std::array arrays{ReadInto(v1::ImportRequest::kKeysFieldNumber, keys),
                          ReadInto(v1::ImportRequest::kValuesFieldNumber, values),
                          ReadInto(v1::ImportRequest::kStateFieldNumber, state)};
  if (Status status = ReadMessage(bytes, arrays, message); !status.ok()) return status;
  if (Status status = AgreeOnTable(message.table(), find_table, table); !status.ok()) return status;
  auto batch = PartOf(std::move(keys));
  if (!batch.ok()) return batch.status();

  const TableOptions& options = table->options;
  const OptimizerKind kind = options.optimizer.kind;
  const std::uint32_t state_size = StateFloats(kind, options.dim);
  const std::size_t rows = batch->keys.size();
  if (Status status = CheckSize("values", values, rows, options.dim); !status.ok()) return status;
  if (Status status = CheckFinite("values", values.values.span()); !status.ok()) return status;

  // A larger count would overflow; the powers of Adam's decay rates are 0 long before.
  if (message.table_steps() > kMostTableSteps) {
    return InvalidArgument("table_steps is " + std::to_string(message.table_steps()) + ": must be at most " +
                           std::to_string(kMostTableSteps));
  }
  ImportRequest request{.table = table->id,
                        .batch = std::move(*batch),
                        .with_state = state.bytes > 0,
                        .table_steps = message.table_steps(),
                        .done = {},
                        .generation = table->generation};
  if (!request.with_state) {
    request.batch.values = std::move(values.values);
    return request;
  }
  const auto states = state.values.span();
  if (Status status = CheckSize("state", state, rows, state_size); !status.ok()) return status;
  if (Status status = CheckFinite("state", states); !status.ok()) return status;
  if (Status status = CheckSquares(states, state_size, SquaresBegin(kind, options.dim)); !status.ok()) {
    return status;
  }
  request.batch.values = Interleave(values.values.span(), options.dim, states, state_size);
  return request;
}

}  // namespace slotwise
