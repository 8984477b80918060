#include "client/cpp/messages.h"

#include <grpcpp/support/slice.h>

#include <array>
#include <utility>

#include "slotwise/v1/rows.pb.h"
#include "wire/table_options_proto.h"
#include "wire/wire_reader.h"

namespace slotwise::client {
namespace {

Status Internal(const Status& status) { return {StatusCode::kInternal, status.message()}; }

// Reads a `bytes` field into a vector, and remembers how many bytes there were.
template <class T>
ArrayField IntoVector(int field, std::vector<T>& to, std::size_t& bytes) {
  return {field, [&to, &bytes](std::size_t size) -> void* {
            bytes = size;
            to.resize((size + sizeof(T) - 1) / sizeof(T));
            return to.data();
          }};
}

}  // namespace

ServerTopology TopologyOf(const v1::GetTopologyReply& reply) {
  ServerTopology topology{.version = reply.version(),
                          .ranks = {},
                          .max_message_bytes = reply.max_message_bytes(),
                          .max_round_bytes = reply.max_round_bytes(),
                          .instance = reply.incarnation(),
                          .epoch = reply.epoch(),
                          .data_version = reply.data_version(),
                          .gives_reasons = reply.gives_reasons()};
  for (const auto& rank : reply.ranks()) {
    ServerRank& made = topology.ranks.emplace_back();
    made.address = rank.address();
    made.device = rank.device();
    made.local = rank.local();
    made.gpu = rank.gpu();
    if (rank.has_local_user()) made.local_user = rank.local_user();
  }
  return topology;
}

Result<TableOptions> OptionsIn(const v1::TableOptions& said) {
  auto options = FromProto(said);
  if (options.ok()) return options;
  return Status(StatusCode::kInternal, "the reply is not of this version: " + options.status().message());
}

Result<TableOptions> DescribedOptions(const v1::DescribeTableReply& reply, std::string_view table) {
  auto options = OptionsIn(reply.options());
  if (!options.ok()) return options;
  if (options->name.view() != table) {
    return Status(StatusCode::kInternal, "the reply describes the table \"" + options->name.str() +
                                             "\", not \"" + std::string(table) + "\"");
  }
  return options;
}

v1::DescribeTableRequest DescribeRequest(std::string_view table, const TableState& acknowledged) {
  v1::DescribeTableRequest request;
  request.set_table(std::string(table));
  SayAcknowledged(acknowledged, request);
  return request;
}

grpc::ByteBuffer Serialize(const google::protobuf::MessageLite& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return {&slice, 1};
}

Status ReadExportReply(const grpc::ByteBuffer& reply, ExportedRows& rows) {
  rows.keys.clear();
  rows.values.clear();
  rows.state.clear();
  std::array<std::size_t, 3> bytes{};
  const std::array arrays{IntoVector(v1::ExportReply::kKeysFieldNumber, rows.keys, bytes[0]),
                          IntoVector(v1::ExportReply::kValuesFieldNumber, rows.values, bytes[1]),
                          IntoVector(v1::ExportReply::kStateFieldNumber, rows.state, bytes[2])};
  v1::ExportReply fields;
  if (Status status = ReadMessage(reply, arrays, fields); !status.ok()) return Internal(status);
  rows.generation = fields.lineage();
  const std::uint64_t count = rows.keys.size();
  if (bytes[0] == count * sizeof(Key) && bytes[1] == count * fields.dim() * sizeof(float) &&
      bytes[2] == count * fields.state_size() * sizeof(float)) {
    return {};
  }
  return {StatusCode::kInternal, "the reply is not a valid ExportReply: " + std::to_string(bytes[0]) +
                                     " bytes of keys, " + std::to_string(bytes[1]) + " of values and " +
                                     std::to_string(bytes[2]) + " of state"};
}

Status Deserialize(const grpc::ByteBuffer& reply, google::protobuf::MessageLite& message) {
  Status status = ReadMessage(reply, {}, message);
  return status.ok() ? status : Internal(status);
}

}  // namespace slotwise::client
