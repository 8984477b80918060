// Implements the client's calls about checkpoints.
#include <utility>

#include "client/cpp/client_impl.h"
#include "client/cpp/messages.h"
#include "slotwise/client.h"
#include "slotwise/v1/admin.pb.h"
#include "wire/data_type_proto.h"

namespace slotwise {
namespace {

CheckpointDescription DescriptionOf(const v1::CheckpointInfo& info) {
  CheckpointDescription checkpoint{.id = info.id(),
                                   .parent = info.parent(),
                                   .folds = info.folds(),
                                   .created = info.created(),
                                   .round = info.round(),
                                   .ranks = info.ranks(),
                                   .tables = {},
                                   .rows = info.rows(),
                                   .bytes = info.bytes(),
                                   .usable = info.usable(),
                                   .why_not = info.why_not(),
                                   .pinned = info.pinned(),
                                   .kept_for_load = info.kept_for_load()};
  for (const auto& table : info.tables()) checkpoint.tables.push_back({table.name(), table.rows()});
  return checkpoint;
}

}  // namespace

Result<CheckpointCreation> Client::SaveCheckpoint(bool delta, DataType value_type, const CallOptions& call) {
  v1::SaveCheckpointRequest request;
  request.set_delta(delta);
  request.set_value_type(ToProto(value_type));
  v1::SaveCheckpointReply reply;
  if (Status status = impl_->Ask(call, "SaveCheckpoint", request, reply); !status.ok()) return status;
  return CheckpointCreation{.id = reply.id(),
                            .delta = reply.delta(),
                            .round = reply.round(),
                            .rows = reply.rows(),
                            .bytes = reply.bytes()};
}

Result<std::vector<CheckpointDescription>> Client::ListCheckpoints(const CallOptions& call) {
  v1::ListCheckpointsReply reply;
  const v1::ListCheckpointsRequest request;
  if (Status status = impl_->Ask(call, "ListCheckpoints", request, reply); !status.ok()) return status;
  std::vector<CheckpointDescription> checkpoints;
  for (const auto& info : reply.checkpoints()) checkpoints.push_back(DescriptionOf(info));
  return checkpoints;
}

Result<CheckpointDetails> Client::DescribeCheckpoint(std::string_view id, const CallOptions& call) {
  v1::DescribeCheckpointRequest request;
  request.set_id(std::string(id));
  v1::DescribeCheckpointReply reply;
  if (Status status = impl_->Ask(call, "DescribeCheckpoint", request, reply); !status.ok()) return status;
  return CheckpointDetails{.checkpoint = DescriptionOf(reply.checkpoint()),
                           .chain = {reply.chain().begin(), reply.chain().end()},
                           .folder = reply.folder(),
                           .manifest = std::move(*reply.mutable_manifest())};
}

Result<CheckpointVerification> Client::VerifyCheckpoint(std::string_view id, const CallOptions& call) {
  v1::VerifyCheckpointRequest request;
  request.set_id(std::string(id));
  v1::VerifyCheckpointReply reply;
  if (Status status = impl_->Ask(call, "VerifyCheckpoint", request, reply); !status.ok()) return status;
  return CheckpointVerification{
      .chain = {reply.chain().begin(), reply.chain().end()}, .files = reply.files(), .bytes = reply.bytes()};
}

Result<CheckpointCreation> Client::LoadCheckpoint(std::string_view id, std::span<const std::string> tables,
                                                  const CallOptions& call,
                                                  const std::optional<RowType>& rows_as) {
  v1::LoadCheckpointRequest request;
  if (rows_as) {
    request.set_row_dtype(ToProto(rows_as->dtype));
    if (rows_as->rounding == Rounding::kNearest) request.set_rounding(v1::ROUNDING_NEAREST);
  }
  if (tables.empty()) {
    request.set_id(std::string(id));
  } else {
    request.mutable_some()->set_id(std::string(id));
    request.mutable_some()->mutable_tables()->Assign(tables.begin(), tables.end());
  }
  v1::LoadCheckpointReply reply;
  if (Status status = impl_->Ask(call, "LoadCheckpoint", request, reply); !status.ok()) return status;
  return CheckpointCreation{
      .id = reply.id(), .delta = false, .round = reply.round(), .rows = reply.rows(), .bytes = reply.bytes()};
}

Status Client::PinCheckpoint(std::string_view id, const CallOptions& call) {
  v1::PinCheckpointRequest request;
  request.set_id(std::string(id));
  v1::PinCheckpointReply reply;
  return impl_->Ask(call, "PinCheckpoint", request, reply);
}

Status Client::ReleaseCheckpoint(std::string_view id, const CallOptions& call) {
  v1::ReleaseCheckpointRequest request;
  request.set_id(std::string(id));
  v1::ReleaseCheckpointReply reply;
  return impl_->Ask(call, "ReleaseCheckpoint", request, reply);
}

Result<CheckpointDescription> Client::CompactCheckpoint(std::string_view id, const CallOptions& call) {
  v1::CompactCheckpointRequest request;
  request.set_id(std::string(id));
  v1::CompactCheckpointReply reply;
  if (Status status = impl_->Ask(call, "CompactCheckpoint", request, reply); !status.ok()) return status;
  return DescriptionOf(reply.checkpoint());
}

}  // namespace slotwise
