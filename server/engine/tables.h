// Tables: those that this rank holds a slice of, by id and by name.
//
// Thread-safety: the engine's thread changes tables and uses their shards and ledgers; any thread reads names
// and options.
#ifndef SLOTWISE_SERVER_ENGINE_TABLES_H_
#define SLOTWISE_SERVER_ENGINE_TABLES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/shard.h"
#include "server/durability/ledger.h"
#include "slotwise/table_options.h"
#include "slotwise/types.h"

namespace slotwise {

struct TableInfo {
  TableId id{0};
  TableOptions options;
};

// Rounds of lookups, and steps, by how their bags travelled (travel_way.h). A server of one rank counts none.
struct TravelledRounds {
  std::uint64_t all_bags = 0;
  std::uint64_t owned_bags = 0;
};

// All that a table is on this rank. Everything but the shard is alike on every rank.
struct Table {
  TableInfo info;
  std::unique_ptr<Shard> shard;
  std::uint64_t steps = 0;                            // optimizer steps applied
  float learning_rate = 0;                            // the options' rate, or the one that was set since
  std::uint64_t max_rows_of_rank = kMaxRowsPerShard;  // what a rank may hold (rank_limit.h)
  TravelledRounds rounds = {};
  Ledger ledger = {};  // the steps that were applied, by their names

  // The options of the optimizer, with the learning rate that holds now.
  OptimizerOptions optimizer() const {
    OptimizerOptions options = info.options.optimizer;
    options.learning_rate = learning_rate;
    return options;
  }
};

class Tables {
 public:
  explicit Tables(std::size_t most) : most_(most) {}

  // For any thread.
  std::optional<TableInfo> Find(std::string_view name) const;
  std::optional<TableInfo> Find(TableId id) const;
  std::vector<TableInfo> All() const;  // by name

  // For the engine's thread.
  Table* Get(TableId id);  // null if there is none
  const Table* Get(TableId id) const;
  std::size_t most() const { return most_; }
  bool full() const { return tables_.size() >= most_; }
  // Returns an id that no table has had. REQUIRES, of Add: not full().
  TableId NewId() { return TableId{next_id_++}; }
  void Add(Table table);
  void Remove(TableId id);

 private:
  mutable std::shared_mutex mutex_;
  const std::size_t most_;
  std::map<TableId, Table> tables_;
  std::map<std::string, TableId, std::less<>> by_name_;
  std::uint32_t next_id_ = 1;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_TABLES_H_
