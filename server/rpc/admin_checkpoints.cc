// The control path's calls about checkpoints.
#include <spdlog/fmt/fmt.h>

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/durability/manifest.h"
#include "server/engine/operations/checkpoint_requests.h"
#include "server/intake/audit_log.h"
#include "server/intake/check.h"
#include "server/intake/quoted.h"
#include "server/rpc/admin_answers.h"
#include "server/rpc/admin_service.h"
#include "server/rpc/call.h"
#include "server/rpc/grpc_status.h"

namespace slotwise {
namespace {

// The default deadline of a call that writes or reads all files of a checkpoint.
constexpr std::chrono::minutes kLongCall{24 * 60};

void Describe(const Manifest& manifest, v1::CheckpointInfo& info) {
  if (manifest.parent) info.set_parent(manifest.parent->id);
  if (manifest.folds) info.set_folds(manifest.folds->id);
  info.set_created(manifest.created);
  info.set_round(manifest.round);
  info.set_ranks(manifest.ranks);
  for (const TableEntry& entry : manifest.tables) {
    std::uint64_t rows = 0;
    for (const RankEntry& rank : entry.ranks) rows += rank.rows;
    v1::CheckpointTable& table = *info.add_tables();
    table.set_name(entry.options.name.str());
    table.set_rows(rows);
  }
  info.set_rows(manifest.Rows());
  info.set_bytes(manifest.Bytes());
}

v1::CheckpointInfo InfoOf(const ListedCheckpoint& listed) {
  v1::CheckpointInfo info;
  const bool is_id = IsCheckpointId(listed.id);
  info.set_id(is_id ? listed.id : Quoted(listed.id));  // a folder that somebody made may have any name
  if (listed.manifest) Describe(*listed.manifest, info);
  info.set_usable(!listed.chain.empty());
  info.set_pinned(listed.pinned);
  info.set_kept_for_load(listed.kept_for_load);
  info.set_why_not(is_id ? listed.why_not.message() : Quoted(listed.id) + " is no checkpoint's id");
  return info;
}

// Returns the ids of a checkpoint's tables of these names, ascending.
template <class Names>
Result<std::vector<TableId>> IdsOf(const Manifest& manifest, const Names& names) {
  std::map<std::string, TableId> tables;
  for (const TableEntry& entry : manifest.tables) tables.emplace(entry.options.name.str(), entry.id);
  std::set<TableId> ids;
  for (const std::string& name : names) {
    const auto table = tables.find(name);
    if (table == tables.end()) return NotFound("checkpoint " + manifest.id + " has no table " + Quoted(name));
    if (!ids.insert(table->second).second) return InvalidArgument("tables: " + name + " comes twice");
  }
  return std::vector<TableId>(ids.begin(), ids.end());
}

// Says in words what a caller wants to load.
std::string WhatIsLoaded(const v1::LoadCheckpointRequest& request) {
  if (!request.has_some()) return "checkpoint " + request.id();
  const v1::TablesOfCheckpoint& some = request.some();
  std::string tables;
  for (const std::string& table : some.tables()) {
    if (tables.size() > 500) return fmt::format("{} tables of checkpoint {}", some.tables_size(), some.id());
    tables += (tables.empty() ? "" : ", ") + Quoted(table);
  }
  return tables + " of checkpoint " + some.id();
}

Status CheckLoad(const v1::LoadCheckpointRequest& request) {
  if (!request.has_some()) return {};
  if (!request.id().empty()) return InvalidArgument("id: must be empty where some.id names the checkpoint");
  return request.some().tables().empty() ? InvalidArgument("some.tables: names no table") : Status();
}

// Answers unless the reply is longer than a message may be.
void AnswerIfItFits(Call& call, const google::protobuf::Message& message, std::uint64_t most,
                    grpc::ByteBuffer* reply) {
  if (const std::uint64_t bytes = message.ByteSizeLong(); bytes > most) {
    return call.Fail(ResourceExhausted("the reply would have " + std::to_string(bytes) +
                                       " bytes, more than limits.max_message_mib allows a message: read the "
                                       "manifests in the data folder"));
  }
  Answer(call, message, reply);
}

}  // namespace

grpc::ServerUnaryReactor* AdminService::SaveCheckpoint(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request,
                                                       grpc::ByteBuffer* reply) {
  auto call = Call::Begin(*context, gate_, kLongCall, CallKind::kOther, Rights::kAdmin);
  grpc::ServerUnaryReactor* reactor = call.get();
  if (call->answered()) return reactor;
  const auto message = Parse<v1::SaveCheckpointRequest>(*request, *call);
  if (!message) return reactor;
  const auto type = CheckDataType(message->value_type(), "value_type");
  const Status legal = type.ok() ? checkpoints_.KeepsCheckpoints() : type.status();
  if (!legal.ok()) {
    call->Fail(legal);
    return reactor;
  }
  const Caller caller = call->caller();
  auto done = [call = std::move(call), reply, caller](const Result<SavedCheckpoint>& saved) {
    if (!saved.ok()) return call->Fail(saved.status());
    LogDeed(Deed::kMakes,
            fmt::format("checkpoint {} is written: {} rows, {} bytes", saved->id, saved->rows, saved->bytes),
            caller);
    v1::SaveCheckpointReply answer;
    answer.set_id(saved->id);
    answer.set_delta(saved->delta);
    answer.set_round(saved->round);
    answer.set_rows(saved->rows);
    answer.set_bytes(saved->bytes);
    Answer(*call, answer, reply);
  };
  engine_.Submit(SaveCheckpointRequest{
      .delta = message->delta(), .value_type = *type, .done = std::move(done), .caller = caller});
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::ListCheckpoints(grpc::CallbackServerContext* context,
                                                        const grpc::ByteBuffer* request,
                                                        grpc::ByteBuffer* reply) {
  auto call = Call::Begin(*context, gate_, default_deadline_, CallKind::kOther, Rights::kAdmin);
  grpc::ServerUnaryReactor* reactor = call.get();
  if (call->answered() || !Parse<v1::ListCheckpointsRequest>(*request, *call)) return reactor;
  checkpoints_.List([call = std::move(call), reply,
                     most = limits_.max_message_bytes](const Result<std::vector<ListedCheckpoint>>& listed) {
    if (!listed.ok()) return call->Fail(listed.status());
    v1::ListCheckpointsReply answer;
    for (const ListedCheckpoint& checkpoint : *listed) *answer.add_checkpoints() = InfoOf(checkpoint);
    AnswerIfItFits(*call, answer, most, reply);
  });
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::DescribeCheckpoint(grpc::CallbackServerContext* context,
                                                           const grpc::ByteBuffer* request,
                                                           grpc::ByteBuffer* reply) {
  auto call = Call::Begin(*context, gate_, default_deadline_, CallKind::kOther, Rights::kAdmin);
  grpc::ServerUnaryReactor* reactor = call.get();
  if (call->answered()) return reactor;
  const auto message = Parse<v1::DescribeCheckpointRequest>(*request, *call);
  if (!message) return reactor;
  checkpoints_.Describe(message->id(), [call = std::move(call), reply, most = limits_.max_message_bytes](
                                           const Result<DescribedCheckpoint>& described) {
    if (!described.ok()) return call->Fail(described.status());
    Manifest manifest = *described->listed.manifest;
    auto text = SerializeManifest(manifest);
    if (!text.ok()) return call->Fail(text.status());
    v1::DescribeCheckpointReply answer;
    *answer.mutable_checkpoint() = InfoOf(described->listed);
    for (const std::string& link : described->listed.chain) answer.add_chain(link);
    answer.set_folder(described->folder);
    answer.set_manifest(std::move(*text));
    AnswerIfItFits(*call, answer, most, reply);
  });
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::VerifyCheckpoint(grpc::CallbackServerContext* context,
                                                         const grpc::ByteBuffer* request,
                                                         grpc::ByteBuffer* reply) {
  auto call = Call::Begin(*context, gate_, kLongCall, CallKind::kOther, Rights::kAdmin);
  grpc::ServerUnaryReactor* reactor = call.get();
  if (call->answered()) return reactor;
  const auto message = Parse<v1::VerifyCheckpointRequest>(*request, *call);
  if (!message) return reactor;
  const auto gone = [call] { return call->abandoned(); };
  const auto done = [call, reply](const Result<VerifiedCheckpoint>& verified) {
    if (!verified.ok()) return call->Fail(verified.status());
    v1::VerifyCheckpointReply answer;
    for (const std::string& link : verified->chain) answer.add_chain(link);
    answer.set_files(verified->read.files);
    answer.set_bytes(verified->read.bytes);
    Answer(*call, answer, reply);
  };
  checkpoints_.Verify(message->id(), gone, done);
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::LoadCheckpoint(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request,
                                                       grpc::ByteBuffer* reply) {
  auto call = Call::Begin(*context, gate_, kLongCall, CallKind::kOther, Rights::kAdmin);
  grpc::ServerUnaryReactor* reactor = call.get();
  if (call->answered()) return reactor;
  const auto message = Parse<v1::LoadCheckpointRequest>(*request, *call);
  if (!message) return reactor;
  if (const Status legal = CheckLoad(*message); !legal.ok()) {
    call->Fail(legal);
    return reactor;
  }
  const Caller caller = call->caller();
  const std::string what = WhatIsLoaded(*message);
  auto done = [call, reply, caller, what](const Result<SavedCheckpoint>& saved) {
    if (!saved.ok()) return call->Fail(saved.status());
    LogDeed(Deed::kTakesAway, fmt::format("{} is loaded, and saved as {}", what, saved->id), caller);
    v1::LoadCheckpointReply answer;
    answer.set_id(saved->id);
    answer.set_round(saved->round);
    answer.set_rows(saved->rows);
    answer.set_bytes(saved->bytes);
    Answer(*call, answer, reply);
  };
  // The engine reads files: it is not asked for what is not there.
  v1::TablesOfCheckpoint asked = message->some();
  if (!message->has_some()) asked.set_id(message->id());
  checkpoints_.Describe(asked.id(), [this, call, caller, asked,
                                     done = std::move(done)](const Result<DescribedCheckpoint>& described) {
    const Status usable = !described.ok()                   ? described.status()
                          : described->listed.chain.empty() ? described->listed.why_not
                                                            : Status();
    if (!usable.ok()) return call->Fail(RefusalToLoad(usable));
    auto ids = IdsOf(*described->listed.manifest, asked.tables());
    if (!ids.ok()) return call->Fail(ids.status());
    engine_.Submit(
        LoadCheckpointRequest{.id = asked.id(), .tables = std::move(*ids), .done = done, .caller = caller});
  });
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::PinCheckpoint(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer* request,
                                                      grpc::ByteBuffer* reply) {
  auto call = Call::Begin(*context, gate_, default_deadline_, CallKind::kOther, Rights::kAdmin);
  grpc::ServerUnaryReactor* reactor = call.get();
  if (call->answered()) return reactor;
  const auto message = Parse<v1::PinCheckpointRequest>(*request, *call);
  if (!message) return reactor;
  checkpoints_.Pin(message->id(), [call = std::move(call), reply](const Result<ListedCheckpoint>& pinned) {
    if (!pinned.ok()) return call->Fail(pinned.status());
    LogDeed(Deed::kSets, "checkpoint " + pinned->id + " is pinned", call->caller());
    Answer(*call, v1::PinCheckpointReply(), reply);
  });
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::ReleaseCheckpoint(grpc::CallbackServerContext* context,
                                                          const grpc::ByteBuffer* request,
                                                          grpc::ByteBuffer* reply) {
  auto call = Call::Begin(*context, gate_, default_deadline_, CallKind::kOther, Rights::kAdmin);
  grpc::ServerUnaryReactor* reactor = call.get();
  if (call->answered()) return reactor;
  const auto message = Parse<v1::ReleaseCheckpointRequest>(*request, *call);
  if (!message) return reactor;
  checkpoints_.Release(message->id(),
                       [call = std::move(call), reply](const Result<ListedCheckpoint>& released) {
                         if (!released.ok()) return call->Fail(released.status());
                         LogDeed(Deed::kSets, "checkpoint " + released->id + " is released", call->caller());
                         Answer(*call, v1::ReleaseCheckpointReply(), reply);
                       });
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::CompactCheckpoint(grpc::CallbackServerContext* context,
                                                          const grpc::ByteBuffer* request,
                                                          grpc::ByteBuffer* reply) {
  auto call = Call::Begin(*context, gate_, kLongCall, CallKind::kOther, Rights::kAdmin);
  grpc::ServerUnaryReactor* reactor = call.get();
  if (call->answered()) return reactor;
  const auto message = Parse<v1::CompactCheckpointRequest>(*request, *call);
  if (!message) return reactor;
  const auto gone = [call] { return call->abandoned(); };
  const auto done = [call, reply, id = message->id()](const Result<ListedCheckpoint>& folded) {
    if (!folded.ok()) return call->Fail(folded.status());
    LogDeed(Deed::kSets, "checkpoint " + folded->id + " is " + id + " folded into a base", call->caller());
    v1::CompactCheckpointReply answer;
    *answer.mutable_checkpoint() = InfoOf(*folded);
    Answer(*call, answer, reply);
  };
  std::string version;
  {
    const std::lock_guard lock(mutex_);
    version = topology_.version;
  }
  checkpoints_.Compact(message->id(), version, gone, done);
  return reactor;
}

}  // namespace slotwise
