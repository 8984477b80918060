// Tables: those that this rank holds a slice of, by id and by name.
//
// Thread-safety: the engine's thread changes tables and uses their shards and ledgers; any thread reads names
// and options.
#ifndef SLOTWISE_SERVER_ENGINE_TABLES_H_
#define SLOTWISE_SERVER_ENGINE_TABLES_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/shard.h"
#include "server/counters/table_counters.h"
#include "server/durability/ledger.h"
#include "server/engine/scratch_budget.h"
#include "slotwise/batch.h"
#include "slotwise/table_options.h"
#include "slotwise/types.h"

namespace slotwise {

struct TableInfo {
  TableId id{0};
  TableOptions options;
  std::uint64_t generation =
      0;  // of its rows (TableVersion), which a load of a checkpoint replaces; 0 in a request
  std::shared_ptr<TableCounters> counters = {};  // the rank's of the table; null in a request
};

// What a table's rows are of. `generation` is drawn when the table is made, and names its state from then on:
// a state with the same generation and no fewer steps has all that an earlier one had. The same on every
// rank.
struct TableVersion {
  std::uint64_t generation = 0;
  std::uint64_t step = 0;  // optimizer steps applied
  friend bool operator==(const TableVersion&, const TableVersion&) = default;
};

// How a push ends well: as which step of the table its step was applied, and what the table is by now,
// which is more if the step came again later.
struct AppliedStep {
  std::uint64_t table_step = 0;
  TableVersion now = {};
};

// Rounds of lookups, and steps, by how their bags travelled (output_distribution.h). A server of one rank
// counts none.
struct TravelledRounds {
  std::uint64_t all_bags = 0;
  std::uint64_t owned_bags = 0;
};

// All that a table is on this rank, but for its steps' names. Everything but the shard is alike on every
// rank.
struct Table {
  TableInfo info;
  std::unique_ptr<Shard> shard;
  std::uint64_t generation = 0;
  std::uint64_t steps = 0;                            // optimizer steps applied
  float learning_rate = 0;                            // the options' rate, or the one that was set since
  std::uint64_t max_rows_of_rank = kMaxRowsPerShard;  // what a rank may hold (rank_limit.h)
  TravelledRounds rounds = {};
  std::shared_ptr<TableCounters> counters = {};  // null until the rank has the table

  // What counters say of the table as it is now.
  TableState state() const;
  TableVersion version() const { return {generation, steps}; }

  // The options of the optimizer, with the learning rate that holds now, or with a step's own.
  OptimizerOptions optimizer(std::optional<float> rate_of_step = {}) const {
    OptimizerOptions options = info.options.optimizer;
    options.learning_rate = rate_of_step.value_or(learning_rate);
    return options;
  }
};

// Tables and steps' names, as a checkpoint has them.
struct SavedTables {
  std::vector<Table> tables;
  bool all = true;  // of the checkpoint's tables are there
  Ledger ledger;
  std::uint32_t next_id = 1;
};

class Tables {
 public:
  // At most `most` tables; their generations come from `instance`, which no other start of a server has.
  explicit Tables(std::size_t most, std::uint64_t instance = 1, const LedgerLimits& ledger = {})
      : most_(most), instance_(instance), ledger_limits_(ledger), ledger_(ledger) {}

  // For any thread.
  std::optional<TableInfo> Find(std::string_view name) const;
  std::optional<TableInfo> Find(TableId id) const;
  std::vector<TableInfo> All() const;  // by name
  // Returns the epoch that a session drawn now carries (ledger.h).
  std::uint64_t epoch() const { return epoch_.load(std::memory_order_relaxed); }

  std::vector<TableStats> Stats() const;  // by name

  // For the engine's thread.
  Table* Get(TableId id);  // null if there is none
  const Table* Get(TableId id) const;
  std::size_t most() const { return most_; }
  std::size_t size() const { return tables_.size(); }
  bool full() const { return size() >= most_; }
  // Returns an id that no table has had. REQUIRES, of Add: not full().
  TableId NewId() { return TableId{next_id_++}; }
  // Returns the generation of a new table of that id.
  std::uint64_t GenerationOf(TableId id) const { return DrawGeneration(instance_, id); }
  // Returns the generation that follows from a number that nothing else had its generations from.
  static std::uint64_t DrawGeneration(std::uint64_t from, TableId id);
  // Returns what the generations of tables come from that a round brings back.
  std::uint64_t GenerationsOfRound(std::uint64_t round) const;
  void Add(Table table);
  // What all tables are now is what their counters begin with: rows that are there did not come.
  void BeginCounting();
  // Returns the table's shard, of which something may still be read.
  std::unique_ptr<Shard> Remove(TableId id);
  // Calls f(Table&) for each table, by id.
  template <class F>
  void ForEach(const F& f) {
    for (auto& [id, table] : tables_) f(table);
  }
  // What the shards keep of memory to work in.
  ScratchBudget& scratch() { return scratch_; }
  // Of a recovery.
  std::uint32_t next_id() const { return next_id_; }
  // Returns the tables that a table of that id and name would take the place of.
  std::vector<TableId> Displaced(TableId id, std::string_view name) const;
  // Returns the tables that Replace would take away.
  std::vector<TableId> Displaced(const SavedTables& saved) const;
  // Has what was saved, in the place of all that there is; of some tables, in the place of those that they
  // displace, and then the ledger stays, and knows of each of them alone what the saved one does, too. Ids go
  // on: no later table has one of before.
  // REQUIRES: no more tables than `most()`; the ledger is LedgerOf's; no shard is in use.
  void Replace(SavedTables saved);
  // Returns the ledger that Ledger::Save wrote. Epochs go on, so that no session of before is taken for a
  // later one. `next_table`: the id of the table that came next. DATA_LOSS: the bytes are no ledger's.
  Result<Ledger> LedgerOf(std::span<const std::byte> bytes, std::uint32_t next_table) const;
  // The steps that were applied to any table, by their names.
  const Ledger& ledger() const { return ledger_; }
  void Record(const Ledger::Sequence& sequence, const StepId& step, std::span<const Ledger::TableStep> tables,
              std::span<const std::uint32_t> bodies);

 private:
  mutable std::shared_mutex mutex_;
  const std::size_t most_;
  const std::uint64_t instance_;
  const LedgerLimits ledger_limits_;
  std::map<TableId, Table> tables_;
  std::map<std::string, TableId, std::less<>> by_name_;
  std::uint32_t next_id_ = 1;
  Ledger ledger_;
  std::atomic<std::uint64_t> epoch_ = ledger_.epoch();
  ScratchBudget scratch_{[this](TableId id) { Get(id)->shard->FreeScratch(); }};
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_TABLES_H_
