// Tables: the tables of a server, with this rank's slice of each, found by id and by name.
//
// Thread-safety: the engine's thread changes tables and uses their shards and ledger. Any thread reads names
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
#include "server/durability/expiry.h"
#include "server/durability/ledger.h"
#include "server/engine/scratch_budget.h"
#include "slotwise/batch.h"
#include "slotwise/power_histogram.h"
#include "slotwise/table_options.h"
#include "slotwise/types.h"

namespace slotwise {

struct TableInfo {
  TableId id{0};
  TableOptions options;
  std::uint64_t generation = 0;                  // changes when a checkpoint is loaded; 0 in a request
  std::shared_ptr<TableCounters> counters = {};  // this rank's; null in a request
};

// Names a state of a table's rows, alike on every rank. `generation` is drawn when the table is made. A state
// contains all of an earlier state with the same generation and no more steps.
struct TableVersion {
  std::uint64_t generation = 0;
  std::uint64_t step = 0;  // optimizer steps applied
  friend bool operator==(const TableVersion&, const TableVersion&) = default;
};

// The outcome of a successful push: the number that its step has among the table's steps, and the table's
// version now, which is later if the push was repeated.
struct AppliedStep {
  std::uint64_t table_step = 0;
  TableVersion now = {};
};

// Counts rounds of lookups, and steps, by how their bags travelled (output_distribution.h). Nothing is
// counted with one rank.
struct TravelledRounds {
  std::uint64_t all_bags = 0;
  std::uint64_t owned_bags = 0;
};

// A table on this rank. The names of its applied steps are in the ledger. Everything but the shard and the
// counters is alike on every rank.
struct Table {
  TableInfo info;
  std::optional<TableOptions> made = {};  // the options that it was made with, if it was altered
  std::unique_ptr<Shard> shard;
  std::uint64_t generation = 0;
  std::uint64_t steps = 0;                            // optimizer steps applied
  float learning_rate = 0;                            // the options' rate, or a later SetLearningRate's
  std::uint64_t max_rows_of_rank = kMaxRowsPerShard;  // bound of rows on a rank (rank_limit.h)
  Expiry expiry = {};
  TableId candidates{0};           // the id of the candidates' table (candidates.h); 0: there is none
  std::uint64_t evicted_rows = 0;  // by batches or by hand, on all ranks, since the server's start
  std::uint64_t expired_rows = 0;  // the same
  // The ages of the rows among them that batches evicted because the table was full, and the least age that
  // a row of the last such eviction can have had.
  EvictedAges evicted_ages = {};
  std::uint64_t youngest_evicted = 0;
  std::uint64_t refused_before = 0;  // keys that pushes before the server's start refused, on this rank
  TravelledRounds rounds = {};
  std::shared_ptr<TableCounters> counters = {};  // null until the rank has the table

  const TableOptions& made_with() const { return made ? *made : info.options; }

  // Returns the table's current state for its counters.
  TableState state() const;
  TableVersion version() const { return {generation, steps}; }

  // Returns the optimizer's options with the current learning rate, or with a step's own rate.
  OptimizerOptions optimizer(std::optional<float> rate_of_step = {}) const {
    OptimizerOptions options = info.options.optimizer;
    options.learning_rate = rate_of_step.value_or(learning_rate);
    return options;
  }
};

// The tables and the ledger of a checkpoint.
struct SavedTables {
  std::vector<Table> tables;
  bool all = true;  // whether `tables` has all of the checkpoint's tables
  Ledger ledger;
  std::uint32_t next_id = 1;
};

class Tables {
 public:
  // Holds at most `most` tables. Their generations derive from `instance`, unique to this start of a server.
  explicit Tables(std::size_t most, std::uint64_t instance = 1, const LedgerLimits& ledger = {})
      : most_(most), instance_(instance), ledger_limits_(ledger), ledger_(ledger) {}

  // For any thread. Tables of candidates are found by their ids alone.
  std::optional<TableInfo> Find(std::string_view name) const;
  std::optional<TableInfo> Find(TableId id) const;
  std::vector<TableInfo> All() const;  // by name
  // Returns the epoch that a session drawn now carries (ledger.h).
  std::uint64_t epoch() const { return epoch_.load(std::memory_order_relaxed); }

  std::vector<TableStats> Stats() const;  // by name

  // For the engine's thread.
  Table* Get(TableId id);  // null if there is none
  const Table* Get(TableId id) const;
  // Returns a table's candidates, or null if it has none.
  Table* CandidatesOf(const Table& table) { return Get(table.candidates); }
  // Returns a table's candidates, or null if it has none that can be forgotten key by key.
  Table* CountsByKeyOf(const Table& table) {
    return table.info.options.has_bloom_counter() ? nullptr : CandidatesOf(table);
  }
  std::size_t most() const { return most_; }
  // Returns the number of tables, without those of candidates.
  std::size_t size() const;
  bool full() const { return size() >= most_; }
  // Returns the first table that is due to be swept by its steps; 0, no table's id: there is none.
  TableId DueBySteps() const;
  // Returns an id that no table has had. The call of Add that follows REQUIRES: not full().
  TableId NewId() { return TableId{next_id_++}; }
  // Returns the generation for a new table with that id.
  std::uint64_t GenerationOf(TableId id) const { return DrawGeneration(instance_, id); }
  // Derives a generation from a number that was not used for generations before.
  static std::uint64_t DrawGeneration(std::uint64_t from, TableId id);
  // Returns the number that generations derive from when a round loads tables of a checkpoint.
  std::uint64_t GenerationsOfRound(std::uint64_t round) const;
  void Add(Table table);
  // Lets counters begin with the tables' current state, so that the rows that are there do not count as new.
  void BeginCounting();
  // Removes a table, and its candidates. Returns their shards, because a snapshot may still have to read the
  // shards' rows.
  std::vector<std::unique_ptr<Shard>> Remove(TableId id);
  // Gives a table other options. A table whose counts begin now gets `candidates`, whose shard is null for
  // all others. Returns the shard of candidates that the table has no more, or null.
  // REQUIRES: the shards of the table and of candidates that stay have been altered.
  std::unique_ptr<Shard> Alter(TableId id, const TableOptions& options, Table candidates);
  // Calls f(Table&) for each table, by id.
  template <class F>
  void ForEach(const F& f) {
    for (auto& [id, table] : tables_) f(table);
  }
  // Bounds the scratch memory that the shards keep.
  ScratchBudget& scratch() { return scratch_; }
  // Used by a recovery.
  std::uint32_t next_id() const { return next_id_; }
  // Returns the tables that a new table with that id and name would replace.
  std::vector<TableId> Displaced(TableId id, std::string_view name) const;
  // Returns the tables that Replace would remove.
  std::vector<TableId> Displaced(const SavedTables& saved) const;
  // Replaces tables by saved ones. If `saved.all`, the saved tables and ledger replace all tables and the
  // ledger. Otherwise the saved tables replace the ones that they displace, and of the saved ledger only the
  // sequences of these single tables are taken over. No later table gets an id that was used before.
  // REQUIRES: no more than most() tables result; the ledger comes from LedgerOf; no shard is in use.
  void Replace(SavedTables saved);
  // Returns the ledger that Ledger::Save wrote. Epochs continue, so that no earlier session is taken for a
  // later one. `next_table` is the next free table id at the time of the save. DATA_LOSS: the bytes are not a
  // ledger.
  Result<Ledger> LedgerOf(std::span<const std::byte> bytes, std::uint32_t next_table) const;
  // Returns the ledger of the steps that were applied to any table.
  const Ledger& ledger() const { return ledger_; }
  void Record(const Ledger::Sequence& sequence, const StepId& step, std::span<const Ledger::TableStep> tables,
              std::span<const std::uint32_t> bodies);

 private:
  // Adds a table that is counted. REQUIRES: mutex_ is held.
  void AddOne(Table table);
  void ListExpiring();
  // Adds the tables' candidates to the ids.
  void WithCandidates(std::vector<TableId>& ids) const;
  std::unique_ptr<Shard> RemoveOne(TableId id);

  mutable std::shared_mutex mutex_;
  const std::size_t most_;
  const std::uint64_t instance_;
  const LedgerLimits ledger_limits_;
  std::map<TableId, Table> tables_;
  std::map<std::string, TableId, std::less<>> by_name_;
  std::vector<const Table*> expiring_;  // those with ttl_steps, by id
  std::uint32_t next_id_ = 1;
  Ledger ledger_;
  std::atomic<std::uint64_t> epoch_ = ledger_.epoch();
  ScratchBudget scratch_{[this](TableId id) { Get(id)->shard->FreeScratch(); }};
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_TABLES_H_
