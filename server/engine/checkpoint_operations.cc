// Operations on the whole state: to save it, and to replace it by a checkpoint's.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "server/engine/checkpoint_loader.h"
#include "server/engine/operations.h"

namespace slotwise {
namespace {

// What a rank could read of a checkpoint.
struct Loaded {
  std::uint64_t checksum = 0;  // of its manifest
  bool failed = false;
};

// The longest that a rank waits for another one to load a checkpoint, as at a start. A rank that dies
// meanwhile is noticed by the heartbeat.
constexpr std::chrono::hours kLongestLoad{12};

std::string BytesOfIds(std::span<const TableId> tables) {
  return {reinterpret_cast<const char*>(tables.data()), tables.size_bytes()};
}

// Says in words what was loaded.
std::string WhatIsLoaded(const std::string& id, const SavedTables& saved) {
  if (saved.all) return "checkpoint " + id + " is loaded";
  std::string tables;
  for (const Table& table : saved.tables) {
    if (tables.size() > 500)
      return std::to_string(saved.tables.size()) + " tables of checkpoint " + id + " are loaded";
    tables += (tables.empty() ? "" : ", ") + table.info.options.name.str();
  }
  return "of checkpoint " + id + " these tables are loaded: " + tables;
}

}  // namespace

void Operations::SaveCheckpoint(const Round& round) {
  std::optional<SaveCheckpointRequest> mine;
  AnswerMine<SaveCheckpointRequest>(round,
                                    [&](SaveCheckpointRequest& request) { mine = std::move(request); });
  if (!checkpointing_.busy()) return checkpointing_.Save(round, mine ? std::move(mine->done) : nullptr);
  if (mine) checkpointing_.Await(std::move(*mine));
}

void Operations::OnCheckpointEvent(const Round& round) {
  AnswerMine<CheckpointEventRequest>(round, [](CheckpointEventRequest& request) { request.done({}); });
  checkpointing_.OnEvent(round);
}

// Requests were checked against the tables that are there, and an id is a table's for good.
Status Operations::FitsHere(const Manifest& checkpoint, std::span<const TableId> only) const {
  if (checkpoint.data_lineage != checkpointing_.data_lineage()) {
    return FailedPrecondition("checkpoint " + checkpoint.id +
                              " is of another data folder: a server that starts there has its tables");
  }
  for (const TableEntry& entry : checkpoint.tables) {
    if (!only.empty() && !std::ranges::binary_search(only, entry.id)) continue;
    const Table* const table = tables_.Get(entry.id);
    if (table == nullptr || table->info.options == entry.options) continue;
    return FailedPrecondition(
        "table " + entry.options.name.str() + " of checkpoint " + checkpoint.id + " has the id of table " +
        table->info.options.name.str() +
        ", which has other options: " + FirstDifference(table->info.options, entry.options));
  }
  return {};
}

void Operations::LoadCheckpoint(const Round& round) {
  std::optional<LoadCheckpointRequest> mine;
  AnswerMine<LoadCheckpointRequest>(round,
                                    [&](LoadCheckpointRequest& request) { mine = std::move(request); });
  if (checkpointing_.busy()) {
    if (mine) checkpointing_.Await(std::move(*mine));
    return;
  }
  Checkpointing::Done done = mine ? mine->done : nullptr;
  const auto refuse = [&](const Status& why) {
    if (done) done(why);
  };
  if (const Status keeps = checkpointing_.KeepsCheckpoints(); !keeps.ok()) return refuse(keeps);

  const auto asker = static_cast<std::size_t>(Value(round.parts[0].ticket.rank));
  const std::string id = AllGatherTexts(collective_, mine ? mine->id : "")[asker];
  const std::string ids = AllGatherTexts(collective_, mine ? BytesOfIds(mine->tables) : "")[asker];
  std::vector<TableId> only(ids.size() / sizeof(TableId));
  std::memcpy(only.data(), ids.data(), ids.size());
  const std::uint64_t lineages = tables_.LineagesOfRound(round.number);
  CheckpointLoader loader(checkpointing_.checkpoints(), checkpointing_.threads(), device_, collective_,
                          maker_, tables_);
  const Watchdog::Patience patience(collective_.watchdog(), kLongestLoad);
  const ExactGrowth exact;
  const Result<Chain> chain = loader.checkpoints().ChainOf(id);
  const Status fits = chain.ok() ? FitsHere(chain->back(), only) : chain.status();
  Result<SavedTables> saved = fits.ok() ? loader.Load(*chain, lineages, only) : fits;
  const CheckpointName name = chain.ok() ? chain->back().name() : CheckpointName{};
  const auto all = AllGatherValues(collective_, Loaded{name.checksum, !saved.ok()});
  if (!saved.ok()) {
    spdlog::error("checkpoint {} could not be loaded: {}", id, saved.status().message());
    return refuse(RefusalToLoad(saved.status()));
  }
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].failed || all[rank].checksum != name.checksum) {
      return refuse(Status(
          StatusCode::kInternal,
          "rank " + std::to_string(rank) + " could not load it, or has another one: its log says why"));
    }
  }
  if (const Status room = AgreeOnRoomToRecord(only.size() * sizeof(TableId)); !room.ok()) return refuse(room);
  const Status kept = checkpointing_.KeepForLoad(round, id);
  if (!kept.ok()) spdlog::error("checkpoint {} is not loaded: {}", id, kept.message());
  if (AllGatherValues(collective_, std::uint64_t{kept.ok() ? 0U : 1U}).front() != 0) {
    const Status told(StatusCode::kInternal, "rank 0 could not keep it and the newest one: its log says why");
    return refuse(kept.ok() ? told : RefusalToLoad(kept));
  }
  const std::string loaded = WhatIsLoaded(id, *saved);
  replaced_ = tables_.Displaced(*saved);
  tables_.Replace(std::move(*saved));
  log_.NoteChange(round_);
  if (log_.on()) {
    log_.Append(round_, only.empty() ? RecordKind::kLoadCheckpoint : RecordKind::kLoadTables,
                RecordLoadCheckpoint(name, lineages, only));
  }
  checkpointing_.ForgetEarlierLoads(round, id);
  if (Value(collective_.rank()) == 0) spdlog::warn("{}: updates that came since are lost", loaded);
  if (done) {
    done = [done = std::move(done), loaded](const Result<SavedCheckpoint>& as_new) {
      if (as_new.ok()) return done(as_new);
      const Status& why = as_new.status();
      done(Status(why.code(),
                  loaded +
                      ", but not saved as a new one, so that a restart may bring back what was before: " +
                      why.message()));
    };
  }
  checkpointing_.SaveLoaded(round, std::move(done));
}

}  // namespace slotwise
