#include "server/engine/tables.h"

#include <algorithm>
#include <mutex>
#include <utility>

namespace slotwise {

std::optional<TableInfo> Tables::Find(std::string_view name) const {
  const std::shared_lock lock(mutex_);
  for (const auto& [id, table] : tables_) {
    if (table.info.options.name.view() == name) return table.info;
  }
  return std::nullopt;
}

std::optional<TableInfo> Tables::Find(TableId id) const {
  const std::shared_lock lock(mutex_);
  const auto found = tables_.find(id);
  return found == tables_.end() ? std::nullopt : std::optional(found->second.info);
}

std::vector<TableInfo> Tables::All() const {
  std::vector<TableInfo> all;
  {
    const std::shared_lock lock(mutex_);
    for (const auto& [id, table] : tables_) all.push_back(table.info);
  }
  std::ranges::sort(all, {}, [](const TableInfo& info) { return info.options.name.view(); });
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
  tables_.insert_or_assign(id, std::move(table));
}

void Tables::Remove(TableId id) {
  const std::scoped_lock lock(mutex_);
  tables_.erase(id);
}

}  // namespace slotwise
