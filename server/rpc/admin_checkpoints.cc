// Implements the Admin service's calls about checkpoints.
#include <spdlog/fmt/fmt.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/durability/manifest.h"
#include "server/engine/operations/checkpoint_requests.h"
#include "server/intake/audit_log.h"
#include "server/intake/check.h"
#include "server/intake/quoted.h"
#include "server/rpc/admin_service.h"
#include "slotwise/table_options.h"

namespace slotwise {
namespace {

// The advice to a caller whose reply would be longer than a message.
constexpr const char* kInstead = "read the manifests in the data folder";

void Describe(const Manifest& manifest, v1::CheckpointInfo& info) {
  if (manifest.parent) info.set_parent(manifest.parent->id);
  if (manifest.folds) info.set_folds(manifest.folds->id);
  info.set_created(manifest.created);
  info.set_round(manifest.round);
  info.set_ranks(manifest.ranks);
  for (const TableEntry& entry : manifest.tables) {
    if (IsOfCandidates(entry.options.name.view())) continue;
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
  info.set_id(is_id ? listed.id : Quoted(listed.id));  // a folder that a person made may have any name
  if (listed.manifest) Describe(*listed.manifest, info);
  info.set_usable(!listed.chain.empty());
  info.set_pinned(listed.pinned);
  info.set_kept_for_load(listed.kept_for_load);
  info.set_why_not(is_id ? listed.why_not.message() : Quoted(listed.id) + " is no checkpoint's id");
  return info;
}

// Returns the ids of a checkpoint's tables with these names, ascending.
template <class Names>
Result<std::vector<TableId>> IdsOf(const Manifest& manifest, const Names& names) {
  std::map<std::string, TableId> tables;
  for (const TableEntry& entry : manifest.tables) {
    if (!IsOfCandidates(entry.options.name.view())) tables.emplace(entry.options.name.str(), entry.id);
  }
  std::set<TableId> ids;
  for (const std::string& name : names) {
    const auto table = tables.find(name);
    if (table == tables.end())
      return NotFound("checkpoint " + manifest.id + " has no table " + Quoted(name))
          .Because(Reason::kNoCheckpoint);
    if (!ids.insert(table->second).second) return InvalidArgument("tables: " + name + " comes twice");
  }
  return std::vector<TableId>(ids.begin(), ids.end());
}

// Describes what a caller wants to load.
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

// Returns what the tables' rows are to be kept as; none: as the checkpoint's were.
Result<std::optional<RowType>> RowsAsked(const v1::LoadCheckpointRequest& request) {
  const bool rounds = request.rounding() != v1::ROUNDING_UNSPECIFIED;
  if (request.row_dtype() == v1::DATA_TYPE_UNSPECIFIED) {
    if (rounds) return InvalidArgument("rounding: needs a row_dtype");
    return std::optional<RowType>();
  }
  const auto type = CheckDataType(request.row_dtype(), "row_dtype");
  if (!type.ok()) return type.status();
  if (rounds && *type == DataType::kFloat32)
    return InvalidArgument("rounding: needs a row_dtype of 16 bits, because float32 rounds nothing");
  if (!v1::Rounding_IsValid(request.rounding()))
    return InvalidArgument("rounding is " + std::to_string(request.rounding()) + ", which is no Rounding");
  const bool nearest = request.rounding() == v1::ROUNDING_NEAREST;
  return std::optional(RowType{*type, nearest ? Rounding::kNearest : Rounding::kStochastic});
}

Status CheckLoad(const v1::LoadCheckpointRequest& request) {
  if (!request.has_some()) return {};
  if (!request.id().empty()) return InvalidArgument("id: must be empty where some.id names the checkpoint");
  return request.some().tables().empty() ? InvalidArgument("some.tables: names no table") : Status();
}

}  // namespace

void AdminService::HandleSaveCheckpoint(
    const SmallCall<v1::SaveCheckpointRequest, v1::SaveCheckpointReply>& call) {
  const auto type = CheckDataType(call.request().value_type(), "value_type");
  const Status legal = type.ok() ? checkpoints_.KeepsCheckpoints() : type.status();
  if (!legal.ok()) return call.Fail(legal);
  auto done = [call](const Result<SavedCheckpoint>& saved) {
    if (!saved.ok()) return call.Fail(saved.status());
    LogDeed(Deed::kMakes,
            fmt::format("checkpoint {} is written: {} rows, {} bytes", saved->id, saved->rows, saved->bytes),
            call.caller());
    v1::SaveCheckpointReply answer;
    answer.set_id(saved->id);
    answer.set_delta(saved->delta);
    answer.set_round(saved->round);
    answer.set_rows(saved->rows);
    answer.set_bytes(saved->bytes);
    call.Answer(answer);
  };
  engine_.Submit(SaveCheckpointRequest{.delta = call.request().delta(),
                                       .value_type = *type,
                                       .done = std::move(done),
                                       .caller = call.caller()});
}

void AdminService::HandleListCheckpoints(
    const SmallCall<v1::ListCheckpointsRequest, v1::ListCheckpointsReply>& call) {
  checkpoints_.List(
      [call, most = limits_.max_message_bytes](const Result<std::vector<ListedCheckpoint>>& listed) {
        if (!listed.ok()) return call.Fail(listed.status());
        v1::ListCheckpointsReply answer;
        for (const ListedCheckpoint& checkpoint : *listed) *answer.add_checkpoints() = InfoOf(checkpoint);
        call.AnswerIfItFits(answer, most, kInstead);
      });
}

void AdminService::HandleDescribeCheckpoint(
    const SmallCall<v1::DescribeCheckpointRequest, v1::DescribeCheckpointReply>& call) {
  checkpoints_.Describe(call.request().id(), [call, most = limits_.max_message_bytes](
                                                 const Result<DescribedCheckpoint>& described) {
    if (!described.ok()) return call.Fail(described.status());
    Manifest manifest = *described->listed.manifest;
    auto text = SerializeManifest(manifest);
    if (!text.ok()) return call.Fail(text.status());
    v1::DescribeCheckpointReply answer;
    *answer.mutable_checkpoint() = InfoOf(described->listed);
    for (const std::string& link : described->listed.chain) answer.add_chain(link);
    answer.set_folder(described->folder);
    answer.set_manifest(std::move(*text));
    call.AnswerIfItFits(answer, most, kInstead);
  });
}

void AdminService::HandleVerifyCheckpoint(
    const SmallCall<v1::VerifyCheckpointRequest, v1::VerifyCheckpointReply>& call) {
  const auto gone = [call] { return call.abandoned(); };
  const auto done = [call](const Result<VerifiedCheckpoint>& verified) {
    if (!verified.ok()) return call.Fail(verified.status());
    v1::VerifyCheckpointReply answer;
    for (const std::string& link : verified->chain) answer.add_chain(link);
    answer.set_files(verified->read.files);
    answer.set_bytes(verified->read.bytes);
    call.Answer(answer);
  };
  checkpoints_.Verify(call.request().id(), gone, done);
}

void AdminService::HandleLoadCheckpoint(
    const SmallCall<v1::LoadCheckpointRequest, v1::LoadCheckpointReply>& call) {
  if (const Status legal = CheckLoad(call.request()); !legal.ok()) return call.Fail(legal);
  const auto rows_as = RowsAsked(call.request());
  if (!rows_as.ok()) return call.Fail(rows_as.status());
  std::string what = WhatIsLoaded(call.request());
  if (*rows_as) what.append(", with rows of ").append(ToString((*rows_as)->dtype)).append(",");
  auto done = [call, what](const Result<SavedCheckpoint>& saved) {
    if (!saved.ok()) return call.Fail(saved.status());
    LogDeed(Deed::kTakesAway, fmt::format("{} is loaded, and saved as {}", what, saved->id), call.caller());
    v1::LoadCheckpointReply answer;
    answer.set_id(saved->id);
    answer.set_round(saved->round);
    answer.set_rows(saved->rows);
    answer.set_bytes(saved->bytes);
    call.Answer(answer);
  };
  // Checked first, because the engine would otherwise read files for a checkpoint that does not exist.
  v1::TablesOfCheckpoint asked = call.request().some();
  if (!call.request().has_some()) asked.set_id(call.request().id());
  checkpoints_.Describe(asked.id(), [this, call, asked, rows_as = *rows_as,
                                     done = std::move(done)](const Result<DescribedCheckpoint>& described) {
    const Status usable = !described.ok()                   ? described.status()
                          : described->listed.chain.empty() ? described->listed.why_not
                                                            : Status();
    if (!usable.ok()) return call.Fail(RefusalToLoad(usable));
    auto ids = IdsOf(*described->listed.manifest, asked.tables());
    if (!ids.ok()) return call.Fail(ids.status());
    engine_.Submit(LoadCheckpointRequest{.id = asked.id(),
                                         .tables = std::move(*ids),
                                         .done = done,
                                         .caller = call.caller(),
                                         .rows_as = rows_as});
  });
}

void AdminService::HandlePinCheckpoint(
    const SmallCall<v1::PinCheckpointRequest, v1::PinCheckpointReply>& call) {
  checkpoints_.Pin(call.request().id(), [call](const Result<ListedCheckpoint>& pinned) {
    if (!pinned.ok()) return call.Fail(pinned.status());
    LogDeed(Deed::kSets, "checkpoint " + pinned->id + " is pinned", call.caller());
    call.Answer({});
  });
}

void AdminService::HandleReleaseCheckpoint(
    const SmallCall<v1::ReleaseCheckpointRequest, v1::ReleaseCheckpointReply>& call) {
  checkpoints_.Release(call.request().id(), [call](const Result<ListedCheckpoint>& released) {
    if (!released.ok()) return call.Fail(released.status());
    LogDeed(Deed::kSets, "checkpoint " + released->id + " is released", call.caller());
    call.Answer({});
  });
}

void AdminService::HandleCompactCheckpoint(
    const SmallCall<v1::CompactCheckpointRequest, v1::CompactCheckpointReply>& call) {
  const auto gone = [call] { return call.abandoned(); };
  const auto done = [call, id = call.request().id()](const Result<ListedCheckpoint>& folded) {
    if (!folded.ok()) return call.Fail(folded.status());
    LogDeed(Deed::kSets, "checkpoint " + folded->id + " is " + id + " folded into a base", call.caller());
    v1::CompactCheckpointReply answer;
    *answer.mutable_checkpoint() = InfoOf(*folded);
    call.Answer(answer);
  };
  std::string version;
  {
    const std::lock_guard lock(mutex_);
    version = topology_.version;
  }
  checkpoints_.Compact(call.request().id(), version, gone, done);
}

}  // namespace slotwise
