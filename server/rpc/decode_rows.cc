#include "server/rpc/decode_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <sstream>
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

// Refuses values that would not be finite as the table's rows have them.
Status CheckValues(std::span<const float> values, const TableOptions& options) {
  if (Status status = CheckFinite("values", values); !status.ok()) return status;
  const DataType type = options.row_dtype;
  if (type == DataType::kFloat32) return {};
  const auto large =
      std::ranges::find_if(values, [type](float value) { return !std::isfinite(RoundedTo(type, value)); });
  if (large == values.end()) return {};
  std::ostringstream numbers;
  numbers << "values[" << large - values.begin() << "] is " << *large << ", which is infinite in table "
          << options.name.str() << ", whose row_dtype is " << ToString(type) << ": the largest number is "
          << LargestOf(type);
  return InvalidArgument(numbers.str());
}

// Refuses numbers that are not finite; a negative sum of squares, which no step can make, because the next
// step would take its square root; and scores that no row can have.
Status CheckState(std::span<const float> state, std::uint32_t columns, const TableOptions& options) {
  const std::uint32_t squares = SquaresBegin(options.optimizer.kind, options.dim);
  const std::uint32_t score = StateFloats(options.optimizer.kind, options.dim);
  for (std::size_t i = 0; i < state.size(); ++i) {
    const std::size_t column = i % columns;
    const auto of_row = [&] { return " (row " + std::to_string(i / columns) + ")"; };
    if (column == score) {
      const std::uint64_t given = ScoreOf(&state[i++]);
      if (given < kScoreBound || given == kScoreOfNew) continue;
      return InvalidArgument("the score in state is " + std::to_string(given) + of_row() +
                             ": must be below 2^63 - 1, or 2^64 - 1 for that of a new row");
    }
    if (std::isfinite(state[i]) && (column < squares || !(state[i] < 0))) continue;
    const std::string is = "state[" + std::to_string(i) + "] is " + std::to_string(state[i]);
    return InvalidArgument(std::isfinite(state[i])
                               ? is + of_row() + ": a sum or mean of squares must not be negative"
                               : is + ": must be finite");
  }
  return {};
}

// Joins the arrays row by row: a row's values, its state of `columns` floats, and the score of a new row if
// `state_size` is more.
BatchArray<float> Interleave(std::span<const float> values, std::size_t dim, std::span<const float> state,
                             std::size_t columns, std::size_t state_size) {
  const std::size_t rows = values.size() / dim;
  BatchArray<float> records(rows * (dim + state_size));
  float* out = records.data();
  for (std::size_t row = 0; row < rows; ++row) {
    out = std::copy_n(&values[row * dim], dim, out);
    out = std::copy_n(&state[row * columns], columns, out);
    if (columns == state_size) continue;
    std::memcpy(out, &kScoreOfNew, sizeof(kScoreOfNew));
    out += sizeof(kScoreOfNew) / sizeof(float);
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
  const std::size_t rows = batch->keys.size();
  if (Status status = CheckSize("values", values, rows, options.dim); !status.ok()) return status;
  if (Status status = CheckValues(values.values.span(), options); !status.ok()) return status;

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
  const std::uint32_t state_size = FloatsBehindValues(options);
  const std::uint32_t of_optimizer = state_size - ScoreFloats(options);
  // Scores may be left out, if there is other state.
  const bool without_scores = of_optimizer > 0 && state.bytes == rows * of_optimizer * sizeof(float);
  const std::uint32_t columns = without_scores ? of_optimizer : state_size;
  if (!options.has_scores() && state.bytes == rows * (state_size + kScoreFloats) * sizeof(float)) {
    return InvalidArgument("state ends with scores, and table " + options.name.str() +
                           " keeps none: it neither evicts nor has a time to live");
  }
  if (Status status = CheckSize("state", state, rows, columns); !status.ok()) return status;
  if (Status status = CheckState(state.values.span(), columns, options); !status.ok()) return status;
  request.batch.values =
      Interleave(values.values.span(), options.dim, state.values.span(), columns, state_size);
  return request;
}

}  // namespace slotwise
