#include "server/engine/operations/load_checkpoint.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "server/engine/checkpoint_loader.h"
#include "server/engine/operations/replay_context.h"
#include "server/engine/operations/round_context.h"

namespace slotwise::operations {
namespace {

// A checkpoint as a rank has read it.
struct Loaded {
  std::uint64_t checksum = 0;  // of its manifest
  bool failed = false;
};

// Bounds a rank's wait for another rank's load of a checkpoint, as at a start. The heartbeat notices a rank
// that dies in the meantime.
constexpr std::chrono::hours kLongestLoad{12};

std::string BytesOfIds(std::span<const TableId> tables) {
  return {reinterpret_cast<const char*>(tables.data()), tables.size_bytes()};
}

// Returns a text that says which checkpoint or tables were loaded.
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

RowType RowTypeOf(const TableOptions& options) { return {options.row_dtype, options.rounding}; }

// Returns FAILED_PRECONDITION if the checkpoint's tables, or the tables in `only`, cannot replace the present
// ones. The same on every rank. Requests were checked against the present tables, and an id belongs to one
// table for ever.
Status FitsHere(const RoundContext& context, const Manifest& checkpoint, std::span<const TableId> only) {
  if (checkpoint.data_lineage != context.checkpointing.data_lineage()) {
    return FailedPrecondition("checkpoint " + checkpoint.id +
                              " is of another data folder: a server that starts there has its tables");
  }
  for (const TableEntry& entry : checkpoint.tables) {
    if (!only.empty() && !std::ranges::binary_search(only, entry.id)) continue;
    const Table* const table = context.tables.Get(entry.id);
    const TableOptions& here = table == nullptr ? entry.options : table->info.options;
    if (DifferByAlteration(WithRows(here, RowTypeOf(entry.options)), entry.options)) continue;
    return FailedPrecondition(
        "table " + entry.options.name.str() + " of checkpoint " + checkpoint.id + " has the id of table " +
        table->info.options.name.str() +
        ", which has other options: " + FirstDifference(table->info.options, entry.options));
  }
  return {};
}

// Reads or writes a record. REQUIRES: whether it has `rows_as`, and without, whether it has `tables`, is set
// according to the record's kind.
void VisitRecord(auto& fields, auto& record) {
  fields.Number(record.generations);
  fields.Number(record.checkpoint.checksum);
  if (record.rows_as) {
    fields.Number(record.rows_as->dtype);
    fields.Number(record.rows_as->rounding);
  }
  const bool lists_tables = record.some || record.rows_as;
  fields.Count(record.checkpoint.id);
  if (lists_tables) fields.Count(record.tables);
  fields.Elements(record.checkpoint.id);
  if (lists_tables) fields.Elements(record.tables);
}

}  // namespace

void LoadCheckpoint::Run(RoundContext& context, const Round& round) {
  Checkpointing& checkpointing = context.checkpointing;
  std::optional<Request> mine;
  context.AnswerMine<Request>(round, [&](Request& request) { mine = std::move(request); });
  if (checkpointing.busy()) {
    if (mine) checkpointing.Await(std::move(*mine));
    return;
  }
  Checkpointing::Done done = mine ? mine->done : nullptr;
  const auto refuse = [&](const Status& why) {
    if (done) done(why);
  };
  if (const Status keeps = checkpointing.KeepsCheckpoints(); !keeps.ok()) return refuse(keeps);

  const auto asker = static_cast<std::size_t>(Value(round.parts[0].ticket.rank));
  const std::string id = AllGatherTexts(context.collective, mine ? mine->id : "")[asker];
  const std::string ids = AllGatherTexts(context.collective, mine ? BytesOfIds(mine->tables) : "")[asker];
  std::vector<TableId> only(ids.size() / sizeof(TableId));
  std::memcpy(only.data(), ids.data(), ids.size());
  const std::optional<RowType> rows_as = round.payload.As<Request::Asked>().rows_as();
  const std::uint64_t generations = context.tables.GenerationsOfRound(round.number);
  CheckpointLoader loader(checkpointing.checkpoints(), checkpointing.threads(), context.device,
                          context.collective, context.maker, context.tables);
  const Watchdog::Patience patience(context.collective.watchdog(), kLongestLoad);
  const ExactGrowth exact;
  const Result<Chain> chain = loader.checkpoints().ChainOf(id);
  const Status fits = chain.ok() ? FitsHere(context, chain->back(), only) : chain.status();
  Result<SavedTables> saved = fits.ok() ? loader.Load(*chain, generations, only, rows_as) : fits;
  const CheckpointName name = chain.ok() ? chain->back().name() : CheckpointName{};
  const auto all = AllGatherValues(context.collective, Loaded{name.checksum, !saved.ok()});
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
  if (const Status room = context.AgreeOnRoomToRecord(only.size() * sizeof(TableId)); !room.ok())
    return refuse(room);
  const Status kept = checkpointing.KeepForLoad(round.number, id);
  if (!kept.ok()) spdlog::error("checkpoint {} is not loaded: {}", id, kept.message());
  if (AllGatherValues(context.collective, std::uint64_t{kept.ok() ? 0U : 1U}).front() != 0) {
    const Status told(StatusCode::kInternal, "rank 0 could not keep it and the newest one: its log says why");
    return refuse(kept.ok() ? told : RefusalToLoad(kept));
  }
  const std::string loaded = WhatIsLoaded(id, *saved);
  context.replaced = context.tables.Displaced(*saved);
  for (const TableId table : context.replaced) context.evicted.Forget(table);
  for (const Table& table : saved->tables) {
    if (!IsOfCandidates(table.info.options.name.view()))
      context.evicted.Begin(table.info.id, round.number, true);
  }
  context.tables.Replace(std::move(*saved));
  const Record record{.generations = generations,
                      .checkpoint = name,
                      .some = !only.empty(),
                      .tables = std::move(only),
                      .rows_as = rows_as};
  context.Record(KindOf(record), [&] { return Write(record); });
  checkpointing.ForgetEarlierLoads(round.number, id);
  if (Value(context.collective.rank()) == 0) spdlog::warn("{}: updates that came since are lost", loaded);
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
  checkpointing.SaveLoaded(round.number, std::move(done));
}

RecordKind LoadCheckpoint::KindOf(const Record& record) {
  if (record.rows_as) return kAsOtherRows;
  return record.some ? kSome : kAll;
}

std::vector<JournalPiece> LoadCheckpoint::Write(const Record& record) {
  RecordWriter writer;
  VisitRecord(writer, record);
  return writer.Finish();
}

Result<LoadCheckpoint::Record> LoadCheckpoint::Read(RecordKind kind, Rank /*rank*/,
                                                    std::span<const std::byte> body) {
  Record record;
  record.some = kind == kSome;
  if (kind == kAsOtherRows) record.rows_as.emplace();
  RecordReader reader(body);
  VisitRecord(reader, record);
  if (record.rows_as) record.some = !record.tables.empty();
  if (Status end = reader.End(); !end.ok()) return end;
  return record;
}

Status LoadCheckpoint::Replay(ReplayContext& context, std::span<const Record> of_ranks) {
  if (Status alike = CheckAlike(of_ranks); !alike.ok()) return alike;
  const Record& record = of_ranks.front();
  const std::vector<TableId>& some = record.tables;
  if (!std::ranges::is_sorted(some) || std::ranges::adjacent_find(some) != some.end() ||
      some.empty() == record.some)
    return DataLoss("the loaded tables' ids do not ascend, or there are none");
  context.loaded_a_checkpoint = true;
  const std::string& id = record.checkpoint.id;
  const auto chain = context.loader.checkpoints().ChainOf(id);
  if (!chain.ok()) {
    return {chain.status().code(),
            "checkpoint " + id + ", which was loaded then, cannot be used: " + chain.status().message()};
  }
  if (chain->back().name() != record.checkpoint)
    return DoesNotFollow("checkpoint " + id + " is not the one that was loaded then");
  auto saved = context.loader.Load(*chain, record.generations, some, record.rows_as);
  if (saved.ok()) context.tables.Replace(std::move(*saved));
  return saved.status();
}

}  // namespace slotwise::operations
