#include "server/engine/checkpoint_loader.h"

#include <algorithm>
#include <cstddef>
#include <new>
#include <set>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "server/durability/checkpoint_reader.h"
#include "server/engine/read_beside.h"

namespace slotwise {
namespace {

static_assert(std::is_same_v<BucketOwners, BucketMap> && kBucketCount == kBuckets,
              "a checkpoint's owners of buckets are a shard's");

// Rows are loaded in pieces of this size; four pieces are in memory.
constexpr std::uint64_t kChunkBytes = std::uint64_t{16} << 20;

}  // namespace

CheckpointLoader::CheckpointLoader(Checkpoints checkpoints, Threads& threads, Device& device,
                                   const Collective& collective, const TableMaker& maker,
                                   const Tables& tables)
    : checkpoints_(std::move(checkpoints)),
      threads_(threads),
      erased_(device),
      rank_(static_cast<std::uint32_t>(Value(collective.rank()))),
      ranks_(collective.size()),
      maker_(maker),
      tables_(tables) {}

Result<SavedTables> CheckpointLoader::Load(const Chain& chain, std::optional<std::uint64_t> generations,
                                           std::span<const TableId> only,
                                           const std::optional<RowType>& rows_as) {
  try {
    return LoadChosen(chain, generations, only, rows_as);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("no memory to load checkpoint " + chain.back().id).Because(Reason::kNoMemory);
  }
}

Result<std::vector<const TableEntry*>> CheckpointLoader::Choose(const Manifest& checkpoint,
                                                                std::span<const TableId> only) const {
  std::vector<const TableEntry*> entries;
  if (only.empty()) {
    for (const TableEntry& entry : checkpoint.tables) {
      if (!IsOfCandidates(entry.options.name.view())) entries.push_back(&entry);
    }
  }
  std::set<TableId> displaced;
  for (const TableId id : only) {
    const TableEntry* const entry = checkpoint.Find(id);
    if (entry == nullptr) {
      return FailedPrecondition("checkpoint " + checkpoint.id + " has no table of id " +
                                std::to_string(Value(id)));
    }
    entries.push_back(entry);
    const auto here = tables_.Displaced(id, entry->options.name.view());
    for (const TableId displaced_id : here) {
      if (!IsOfCandidates(tables_.Get(displaced_id)->info.options.name.view()))
        displaced.insert(displaced_id);
    }
  }
  const std::size_t others = only.empty() ? 0 : tables_.size() - displaced.size();
  if (entries.size() + others <= tables_.most()) {
    // Each of those with candidates is followed by its candidates' table.
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (!entries[i]->options.has_candidates()) continue;
      const TableEntry& candidates = checkpoint.CandidatesOf(*entries[i]);
      entries.insert(entries.begin() + static_cast<std::ptrdiff_t>(i) + 1, &candidates);
    }
    return entries;
  }
  std::string message =
      "checkpoint " + checkpoint.id + " has " + std::to_string(entries.size()) + " tables, ";
  if (others > 0) message += "beside which " + std::to_string(others) + " stay, ";
  return ResourceExhausted(message + "and limits.max_tables allows " + std::to_string(tables_.most()));
}

Result<SavedTables> CheckpointLoader::LoadChosen(const Chain& chain, std::optional<std::uint64_t> generations,
                                                 std::span<const TableId> only,
                                                 const std::optional<RowType>& rows_as) {
  const Manifest& last = chain.back();
  const auto entries = Choose(last, only);
  if (!entries.ok()) return entries.status();
  for (const Manifest& link : chain) {
    if (OriginOf(link.id)) continue;
    return FailedPrecondition("checkpoint " + link.id + " in " + checkpoints_.folder() +
                              " has an id that no server gives: it does not begin with its round, " +
                              std::to_string(link.round) + ", and its server instance");
  }
  SavedTables saved;
  saved.all = only.empty();
  saved.next_id = last.next_table_id;
  for (const TableEntry* const chosen : *entries) {
    const TableEntry& entry = *chosen;
    const std::uint64_t generation =
        generations ? Tables::DrawGeneration(*generations, entry.id) : entry.generation;
    const bool other_rows = rows_as && !IsOfCandidates(entry.options.name.view());
    const TableOptions options = other_rows ? WithRows(entry.options, *rows_as) : entry.options;
    if (const Status legal = Validate(options); !legal.ok()) {
      return Status(legal.code(), "table " + options.name.str() + ": " + legal.message());
    }
    auto table = maker_.MakeForRowsOfBefore(entry.id, options, generation);
    if (!table.ok()) return table.status();
    table->made = entry.made;
    if (other_rows && table->made) table->made = WithRows(*table->made, *rows_as);
    if (entry.options.has_candidates()) table->candidates = last.CandidatesOf(entry).id;
    table->steps = entry.steps;
    table->learning_rate = entry.learning_rate;
    table->expiry = entry.expiry;
    table->expiry.swept_seconds = 0;
    if (Status loaded = LoadRows(chain, entry, *table); !loaded.ok()) return loaded;
    saved.tables.push_back(std::move(*table));
  }
  const auto bytes = ReadLedger(checkpoints_.files(), checkpoints_.folder(), chain);
  if (!bytes.ok()) return bytes.status();
  auto ledger = tables_.LedgerOf(*bytes, last.next_table_id);
  if (!ledger.ok()) {
    return FailedPrecondition(checkpoints_.folder() + "/" + last.id + "/" + std::string(kLedgerName) + ": " +
                              ledger.status().message());
  }
  saved.ledger = std::move(*ledger);
  return saved;
}

Status CheckpointLoader::LoadRows(const Chain& chain, const TableEntry& entry, Table& table) {
  Shard& shard = *table.shard;
  std::uint64_t rows = 0;  // over all ranks
  for (const RankEntry& rank : entry.ranks) rows += rank.rows;
  const std::uint64_t mine = rows / static_cast<std::uint64_t>(ranks_);
  if (Status room = shard.Reserve(mine); !room.ok()) return room;
  const RowSink sink{.rows = [&](std::span<const Key> keys,
                                 std::span<const float> records) { return shard.Load(keys, records.data()); },
                     .erase =
                         [&](std::span<const Key> keys) {
                           return keys.empty() ? Status() : EraseKeys(shard, erased_.Of(keys));
                         }};
  const auto read = [&](const RowSink& taken) {
    return ReadTable(checkpoints_.files(), checkpoints_.folder(), chain, entry.id, EvenBucketMap(ranks_),
                     BucketOf, rank_, kChunkBytes, taken);
  };
  return ReadBeside(threads_, read, sink);
}

}  // namespace slotwise
