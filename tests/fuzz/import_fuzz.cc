// Fuzzes imports as the server decodes them: a stream of v1.ImportRequest, each field 1 of the input.
#include "server/rpc/decode_rows.h"
#include "slotwise/v1/rows.pb.h"
#include "tests/fuzz/fuzz.h"
#include "wire/nested.h"

namespace slotwise::fuzz {
namespace {

// Encodes a request again.
std::string Encode(const ImportRequest& request, const TableOptions& options) {
  const std::size_t state = request.with_state ? FloatsBehindValues(options) : 0;
  v1::ImportRequest message;
  message.set_table(options.name.str());
  message.set_table_steps(request.table_steps);
  message.set_keys(BytesOf(request.batch.keys.span()));
  auto records = request.batch.values.span();
  for (std::size_t row = 0; row < request.batch.keys.size(); ++row) {
    message.mutable_values()->append(BytesOf(records.first(options.dim)));
    message.mutable_state()->append(BytesOf(records.subspan(options.dim, state)));
    records = records.subspan(options.dim + state);
  }
  return message.SerializeAsString();
}

void RequireSame(const ImportRequest& a, const ImportRequest& b) {
  Require(a.table == b.table && a.with_state == b.with_state && a.table_steps == b.table_steps,
          "that the small fields are the same");
  RequireSameBatch(a.batch, b.batch);
  Require(SameBytes(a.batch.values.span(), b.batch.values.span()), "that the rows are the same");
}

void Check(const ImportRequest& request, const TableOptions& options) {
  RequireValid(request.batch, 1);
  Require(request.batch.samples == request.batch.keys.size(), "one key a bag");
  const std::size_t state = request.with_state ? FloatsBehindValues(options) : 0;
  const auto records = request.batch.values.span();
  Require(records.size() == request.batch.keys.size() * (options.dim + state), "a record for each key");
  Require(Finite(records), "that the rows are finite");
  for (std::size_t i = 0; i < records.size(); ++i) {
    const std::size_t column = i % (options.dim + state);
    const std::size_t squares = options.dim + SquaresBegin(options.optimizer.kind, options.dim);
    Require(column < squares || records[i] >= 0, "that sums of squares are not negative");
  }
}

}  // namespace

void Run(std::string_view bytes) {
  const auto messages = SplitMessages(BufferOf(bytes), 1, "stream");
  if (!messages.ok()) return;
  std::optional<TableInfo> table;
  std::optional<TableInfo> sliced_table;
  for (const grpc::ByteBuffer& message : *messages) {
    const auto request = DecodeImport(message, FindTable, table);
    const auto in_slices = DecodeImport(InSlices(StringOf(message)), FindTable, sliced_table);
    Require(request.status().code() == in_slices.status().code(), "that slices make no difference");
    if (!request.ok()) return;
    Require(table.has_value() && request->table == table->id, "that the stream has a table");
    Check(*request, table->options);
    RequireSame(*request, *in_slices);
    const auto again = DecodeImport(BufferOf(Encode(*request, table->options)), FindTable, table);
    Require(again.ok(), "that it is taken when it is encoded again");
    RequireSame(*request, *again);
  }
}

}  // namespace slotwise::fuzz
