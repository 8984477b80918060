// Tables: those that this rank holds a slice of, by id and by name.
//
// Thread-safety: the engine's thread changes it and uses shards; any thread reads names and options.
#ifndef SLOTWISE_SERVER_ENGINE_TABLES_H_
#define SLOTWISE_SERVER_ENGINE_TABLES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string_view>
#include <vector>

#include "kernels/shard.h"
#include "slotwise/table_options.h"
#include "slotwise/types.h"

namespace slotwise {

struct TableInfo {
  TableId id{0};
  TableOptions options;
};

// Rounds of lookups, and steps, by how their bags travelled (travel_way.h); none are counted on one rank.
struct TravelledRounds {
  std::uint64_t all_bags = 0;
  std::uint64_t owned_bags = 0;
};

struct Table {
  TableInfo info;
  std::unique_ptr<Shard> shard;
  std::uint64_t steps = 0;  // optimizer steps applied
  float learning_rate = 0;  // the options', or what was set since
  TravelledRounds rounds = {};
};

class Tables {
 public:
  // For any thread.
  std::optional<TableInfo> Find(std::string_view name) const;
  std::optional<TableInfo> Find(TableId id) const;
  std::vector<TableInfo> All() const;  // by name

  // For the engine's thread.
  Table* Get(TableId id);  // null if there is none
  void Add(Table table);
  void Remove(TableId id);

 private:
  mutable std::shared_mutex mutex_;
  std::map<TableId, Table> tables_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_TABLES_H_
