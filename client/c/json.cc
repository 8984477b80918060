#include "client/c/json.h"

#include <google/protobuf/util/json_util.h>

#include <stdexcept>

#include "slotwise/v1/admin.pb.h"
#include "wire/stats_proto.h"
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

v1::CheckpointInfo ToProto(const CheckpointDescription& checkpoint) {
  v1::CheckpointInfo info;
  info.set_id(checkpoint.id);
  info.set_parent(checkpoint.parent);
  info.set_folds(checkpoint.folds);
  info.set_created(checkpoint.created);
  info.set_round(checkpoint.round);
  info.set_ranks(checkpoint.ranks);
  for (const TableInCheckpoint& table : checkpoint.tables) {
    v1::CheckpointTable& entry = *info.add_tables();
    entry.set_name(table.name);
    entry.set_rows(table.rows);
  }
  info.set_rows(checkpoint.rows);
  info.set_bytes(checkpoint.bytes);
  info.set_usable(checkpoint.usable);
  info.set_why_not(checkpoint.why_not);
  info.set_pinned(checkpoint.pinned);
  info.set_kept_for_load(checkpoint.kept_for_load);
  return info;
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
  *reply.mutable_options() = slotwise::ToProto(creation.options);
  reply.set_created(creation.created);
  return Print(reply);
}

std::string ToJson(const std::vector<TableOptions>& tables) {
  v1::ListTablesReply reply;
  for (const TableOptions& table : tables) *reply.add_tables() = slotwise::ToProto(table);
  return Print(reply);
}

std::string ToJson(const TableDescription& table) {
  v1::DescribeTableReply reply;
  *reply.mutable_options() = slotwise::ToProto(table.options);
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
    info.set_local(rank.local);
  }
  return Print(reply);
}

std::string ToJson(const std::vector<RankStats>& ranks) {
  std::string json;
  for (const RankStats& rank : ranks) json += (json.empty() ? "" : ",") + Print(slotwise::ToProto(rank));
  return R"({"ranks":[)" + json + "]}";
}

std::string ToJson(const SessionDescription& session) {
  v1::DescribeSessionReply reply;
  reply.set_known(session.known);
  reply.set_last_step(session.last_step);
  reply.set_epoch(session.epoch);
  reply.set_may_be_forgotten(session.may_be_forgotten);
  reply.set_incarnation(session.incarnation);
  for (const SessionTable& table : session.tables) {
    v1::SessionTable& entry = *reply.add_tables();
    entry.set_table(table.table);
    entry.set_last_step(table.last_step);
  }
  return Print(reply);
}

std::string ToJson(const CheckpointCreation& made) {
  v1::SaveCheckpointReply reply;
  reply.set_id(made.id);
  reply.set_delta(made.delta);
  reply.set_round(made.round);
  reply.set_rows(made.rows);
  reply.set_bytes(made.bytes);
  return Print(reply);
}

std::string ToJson(const std::vector<CheckpointDescription>& checkpoints) {
  v1::ListCheckpointsReply reply;
  for (const CheckpointDescription& checkpoint : checkpoints) *reply.add_checkpoints() = ToProto(checkpoint);
  return Print(reply);
}

std::string ToJson(const CheckpointDetails& details) {
  v1::DescribeCheckpointReply reply;
  *reply.mutable_checkpoint() = ToProto(details.checkpoint);
  for (const std::string& link : details.chain) reply.add_chain(link);
  reply.set_folder(details.folder);
  reply.set_manifest(details.manifest);
  return Print(reply);
}

std::string ToJson(const CheckpointVerification& verified) {
  v1::VerifyCheckpointReply reply;
  for (const std::string& link : verified.chain) reply.add_chain(link);
  reply.set_files(verified.files);
  reply.set_bytes(verified.bytes);
  return Print(reply);
}

std::string ToJson(const CheckpointDescription& folded) {
  v1::CompactCheckpointReply reply;
  *reply.mutable_checkpoint() = ToProto(folded);
  return Print(reply);
}

}  // namespace slotwise::c
