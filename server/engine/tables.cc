#include "server/engine/tables.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <utility>

#include "server/engine/split_mix.h"

namespace slotwise {

namespace {

void Count(Table& table) {
  const TableOptions& options = table.info.options;
  table.counters = std::make_shared<TableCounters>(options.name.str(), options.max_rows, options.evicts());
  table.counters->Begin(table.state());
}

TableInfo InfoOf(const Table& table) {
  return {table.info.id, table.info.options, table.generation, table.counters};
}

}  // namespace

std::uint64_t Tables::DrawGeneration(std::uint64_t from, TableId id) {
  const std::uint64_t generation = SplitMix(from + SplitMix(Value(id)));
  return generation == 0 ? 1 : generation;  // 0 means that there is none
}

std::uint64_t Tables::GenerationsOfRound(std::uint64_t round) const {
  return SplitMix(instance_ ^ SplitMix(~round));
}

void Tables::Record(const Ledger::Sequence& sequence, const StepId& step,
                    std::span<const Ledger::TableStep> tables, std::span<const std::uint32_t> bodies) {
  ledger_.Record(sequence, step.number, step.epoch, tables, bodies);
  epoch_.store(ledger_.epoch(), std::memory_order_relaxed);
}

std::size_t Tables::size() const {
  return static_cast<std::size_t>(std::ranges::count_if(
      tables_, [](const auto& entry) { return !IsOfCandidates(entry.second.info.options.name.view()); }));
}

std::optional<TableInfo> Tables::Find(std::string_view name) const {
  if (IsOfCandidates(name)) return std::nullopt;
  const std::shared_lock lock(mutex_);
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return std::nullopt;
  return InfoOf(tables_.at(found->second));
}

std::optional<TableInfo> Tables::Find(TableId id) const {
  const std::shared_lock lock(mutex_);
  const auto found = tables_.find(id);
  if (found == tables_.end()) return std::nullopt;
  return InfoOf(found->second);
}

std::vector<TableInfo> Tables::All() const {
  const std::shared_lock lock(mutex_);
  std::vector<TableInfo> all;
  all.reserve(by_name_.size());
  for (const auto& [name, id] : by_name_) {
    if (!IsOfCandidates(name)) all.push_back(InfoOf(tables_.at(id)));
  }
  return all;
}

std::vector<TableStats> Tables::Stats() const {
  const std::shared_lock lock(mutex_);
  std::vector<TableStats> all;
  all.reserve(by_name_.size());
  for (const auto& [name, id] : by_name_) all.push_back(tables_.at(id).counters->Read());
  return all;
}

void Tables::BeginCounting() {
  for (auto& [id, table] : tables_) {
    table.counters->Begin(table.state());
    table.refused_before = table.state().refused_keys;
  }
}

Table* Tables::Get(TableId id) {
  const auto found = tables_.find(id);  // only this thread changes the map
  return found == tables_.end() ? nullptr : &found->second;
}

const Table* Tables::Get(TableId id) const {
  const auto found = tables_.find(id);
  return found == tables_.end() ? nullptr : &found->second;
}

TableState Table::state() const {
  // RoundSchedulers are tested with tables that have no shard.
  const ShardUsage usage = shard ? shard->Usage() : ShardUsage{};
  return {.rows = usage.rows,
          .cells = usage.cells,
          .bytes = usage.bytes,
          .steps = steps,
          .all_bags = rounds.all_bags,
          .owned_bags = rounds.owned_bags,
          .step_keys = usage.step_keys,
          .step_rows = usage.step_rows,
          .refused_keys = usage.refused_keys,
          .probes = shard ? shard->SampledProbes() : ProbeLengths{}};
}

void Tables::Add(Table table) {
  Count(table);
  const std::scoped_lock lock(mutex_);
  AddOne(std::move(table));
}

void Tables::AddOne(Table table) {
  const TableId id = table.info.id;
  by_name_.insert_or_assign(table.info.options.name.str(), id);
  next_id_ = std::max(next_id_, Value(id) + 1);
  tables_.insert_or_assign(id, std::move(table));
  ListExpiring();
}

std::unique_ptr<Shard> Tables::Alter(TableId id, const TableOptions& options, Table candidates) {
  const auto alter = [](Table& table, const TableOptions& to) {
    table.info.options = to;
    table.counters->Alter(to.max_rows, to.evicts());
  };
  if (candidates.shard) Count(candidates);
  const std::scoped_lock lock(mutex_);
  Table& table = tables_.at(id);
  if (!table.made) table.made = table.info.options;
  if (*table.made == options) table.made.reset();
  alter(table, options);
  table.expiry.Alter(options);
  std::unique_ptr<Shard> dropped;
  if (candidates.shard) {
    dropped = RemoveOne(std::exchange(table.candidates, candidates.info.id));
    AddOne(std::move(candidates));
  } else if (Table* const counted = Get(table.candidates); counted != nullptr) {
    if (options.has_candidates()) {
      alter(*counted, slotwise::CandidatesOf(options));
    } else {
      dropped = RemoveOne(std::exchange(table.candidates, TableId{0}));
    }
  }
  ListExpiring();
  return dropped;
}

TableId Tables::DueBySteps() const {
  for (const Table* const table : expiring_) {
    if (table->expiry.IsDueBySteps(table->info.options, table->steps)) return table->info.id;
  }
  return TableId{0};
}

void Tables::ListExpiring() {
  expiring_.clear();
  for (const auto& [id, table] : tables_) {
    if (table.info.options.ttl_steps > 0) expiring_.push_back(&table);
  }
}

std::vector<std::unique_ptr<Shard>> Tables::Remove(TableId id) {
  const std::scoped_lock lock(mutex_);
  std::vector<TableId> ids{id};
  WithCandidates(ids);
  std::vector<std::unique_ptr<Shard>> shards;
  for (const TableId gone : ids) shards.push_back(RemoveOne(gone));
  return shards;
}

std::unique_ptr<Shard> Tables::RemoveOne(TableId id) {
  const auto found = tables_.find(id);
  if (found == tables_.end()) return nullptr;
  scratch_.Forget(id);
  by_name_.erase(found->second.info.options.name.str());
  std::unique_ptr<Shard> shard = std::move(found->second.shard);
  tables_.erase(found);
  ListExpiring();
  ledger_.ForgetTable(id);
  return shard;
}

Result<Ledger> Tables::LedgerOf(std::span<const std::byte> bytes, std::uint32_t next_table) const {
  LedgerLimits limits = ledger_limits_;
  limits.first_epoch = std::max(limits.first_epoch, ledger_.epoch());
  Ledger ledger(limits);
  if (Status loaded = ledger.Load(bytes, next_table); !loaded.ok()) return loaded;
  return ledger;
}

std::vector<TableId> Tables::Displaced(TableId id, std::string_view name) const {
  std::vector<TableId> displaced;
  if (tables_.contains(id)) displaced.push_back(id);
  // Only this thread changes the maps.
  if (const auto found = by_name_.find(name); found != by_name_.end() && found->second != id)
    displaced.push_back(found->second);
  WithCandidates(displaced);
  return displaced;
}

void Tables::WithCandidates(std::vector<TableId>& ids) const {
  for (std::size_t i = 0, count = ids.size(); i < count; ++i) {
    const Table* const table = Get(ids[i]);
    if (table != nullptr && tables_.contains(table->candidates)) ids.push_back(table->candidates);
  }
}

std::vector<TableId> Tables::Displaced(const SavedTables& saved) const {
  std::set<TableId> displaced;
  if (saved.all) {
    for (const auto& [id, table] : tables_) displaced.insert(id);
  } else {
    for (const Table& table : saved.tables) {
      const auto of_table = Displaced(table.info.id, table.info.options.name.view());
      displaced.insert(of_table.begin(), of_table.end());
    }
  }
  return {displaced.begin(), displaced.end()};
}

void Tables::Replace(SavedTables saved) {
  std::map<TableId, Table> old;  // freed without the lock
  std::vector<TableId> loaded;
  {
    const std::scoped_lock lock(mutex_);
    for (const TableId id : Displaced(saved)) {
      scratch_.Forget(id);
      by_name_.erase(tables_.at(id).info.options.name.str());
      old.insert(tables_.extract(id));
    }
    next_id_ = std::max(next_id_, saved.next_id);
    for (Table& table : saved.tables) {
      Count(table);
      by_name_.emplace(table.info.options.name.str(), table.info.id);
      const TableId id = table.info.id;
      loaded.push_back(id);
      tables_.emplace(id, std::move(table));
    }
    ListExpiring();
  }
  if (saved.all) {
    ledger_ = std::move(saved.ledger);
  } else {
    for (const auto& [id, table] : old) {
      if (!tables_.contains(id)) ledger_.ForgetTable(id);
    }
    for (const TableId id : loaded) ledger_.RecallTable(saved.ledger, id);
  }
  epoch_.store(ledger_.epoch(), std::memory_order_relaxed);
}

}  // namespace slotwise
