#include "client/c/json.h"

#include <google/protobuf/util/json_util.h>

#include <stdexcept>

#include "slotwise/v1/admin.pb.h"
#include "wire/table_options_proto.h"

namespace slotwise::c {
namespace {

std::string Print(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(message, &json, options);
  if (!status.ok()) throw std::logic_error("a message has no JSON: " + std::string(status.message()));
  return json;
}

}  // namespace

Result<TableOptions> TableOptionsFromJson(const std::string& json) {
  v1::TableOptions options;
  const auto status = google::protobuf::util::JsonStringToMessage(json, &options);
  if (!status.ok()) return InvalidArgument("options: " + std::string(status.message()));
  return FromProto(options);
}

std::string ToJson(const TableCreation& creation) {
  v1::CreateTableReply reply;
  *reply.mutable_options() = ToProto(creation.options);
  reply.set_created(creation.created);
  return Print(reply);
}

std::string ToJson(const std::vector<TableOptions>& tables) {
  v1::ListTablesReply reply;
  for (const TableOptions& table : tables) *reply.add_tables() = ToProto(table);
  return Print(reply);
}

std::string ToJson(const TableDescription& table) {
  v1::DescribeTableReply reply;
  *reply.mutable_options() = ToProto(table.options);
  reply.set_steps(table.steps);
  reply.set_learning_rate(table.learning_rate);
  reply.set_base_learning_rate(table.base_learning_rate);
  reply.set_lineage(table.lineage);
  reply.mutable_rounds()->set_all_bags(table.rounds.all_bags);
  reply.mutable_rounds()->set_owned_bags(table.rounds.owned_bags);
  for (const ShardDescription& shard : table.shards) {
    v1::ShardInfo& info = *reply.add_shards();
    info.set_rows(shard.rows);
    info.set_cells(shard.cells);
    info.set_bytes(shard.bytes);
  }
  return Print(reply);
}

std::string ToJson(const TableDigest& digest) {
  v1::DigestReply reply;
  reply.set_digest(digest.digest);
  reply.set_rows(digest.rows);
  reply.set_steps(digest.steps);
  return Print(reply);
}

std::string ToJson(const ServerTopology& topology) {
  v1::GetTopologyReply reply;
  reply.set_version(topology.version);
  reply.set_max_message_bytes(topology.max_message_bytes);
  reply.set_incarnation(topology.incarnation);
  reply.set_epoch(topology.epoch);
  reply.set_max_round_bytes(topology.max_round_bytes);
  for (const ServerRank& rank : topology.ranks) {
    v1::RankInfo& info = *reply.add_ranks();
    info.set_address(rank.address);
    info.set_device(rank.device);
  }
  return Print(reply);
}

}  // namespace slotwise::c
