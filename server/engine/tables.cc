#include "server/engine/tables.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "server/engine/split_mix.h"

namespace slotwise {

std::uint64_t Tables::LineageOf(TableId id) const {
  const std::uint64_t lineage = SplitMix(incarnation_ + SplitMix(Value(id)));
  return lineage == 0 ? 1 : lineage;  // 0 means that there is none
}

void Tables::Record(const Ledger::Sequence& sequence, const StepId& step,
                    std::span<const Ledger::TableStep> tables, std::span<const std::uint32_t> bodies) {
  ledger_.Record(sequence, step.number, step.epoch, tables, bodies);
  epoch_.store(ledger_.epoch(), std::memory_order_relaxed);
}

std::optional<TableInfo> Tables::Find(std::string_view name) const {
  const std::shared_lock lock(mutex_);
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? std::nullopt : std::optional(tables_.at(found->second).info);
}

std::optional<TableInfo> Tables::Find(TableId id) const {
  const std::shared_lock lock(mutex_);
  const auto found = tables_.find(id);
  return found == tables_.end() ? std::nullopt : std::optional(found->second.info);
}

std::vector<TableInfo> Tables::All() const {
  const std::shared_lock lock(mutex_);
  std::vector<TableInfo> all;
  all.reserve(by_name_.size());
  for (const auto& [name, id] : by_name_) all.push_back(tables_.at(id).info);
  return all;
}

Table* Tables::Get(TableId id) {
  const auto found = tables_.find(id);  // only this thread changes the map
  return found == tables_.end() ? nullptr : &found->second;
}

const Table* Tables::Get(TableId id) const {
  const auto found = tables_.find(id);
  return found == tables_.end() ? nullptr : &found->second;
}

void Tables::Add(Table table) {
  const std::scoped_lock lock(mutex_);
  const TableId id = table.info.id;
  by_name_.insert_or_assign(table.info.options.name.str(), id);
  next_id_ = std::max(next_id_, Value(id) + 1);
  tables_.insert_or_assign(id, std::move(table));
}

std::unique_ptr<Shard> Tables::Remove(TableId id) {
  const std::scoped_lock lock(mutex_);
  const auto found = tables_.find(id);
  if (found == tables_.end()) return nullptr;
  by_name_.erase(found->second.info.options.name.str());
  std::unique_ptr<Shard> shard = std::move(found->second.shard);
  tables_.erase(found);
  ledger_.ForgetTable(id);
  return shard;
}

Status Tables::LoadLedger(std::span<const std::byte> bytes) {
  Status loaded = ledger_.Load(bytes);
  epoch_.store(ledger_.epoch(), std::memory_order_relaxed);
  return loaded;
}

void Tables::Clear() {
  const std::scoped_lock lock(mutex_);
  tables_.clear();
  by_name_.clear();
  next_id_ = 1;
  ledger_ = Ledger(ledger_limits_);
}

}  // namespace slotwise
