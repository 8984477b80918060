// Evictor: removes rows of tables that a batch would make too full, between the ranks' agreement and the
// insertion. docs/semantics.md says which rows go.
//
// The ranks find the last place that goes together: each counts its rows by one digit of their places
// (kernels/eviction_place.h), the ranks add up the counts, and go on with the digit in which the last place
// lies. So the rows that go do not depend on the number of ranks.
// Thread-safety: the engine's thread only.
#ifndef SLOTWISE_SERVER_ENGINE_EVICTOR_H_
#define SLOTWISE_SERVER_ENGINE_EVICTOR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "kernels/shard.h"
#include "server/collective/collective.h"
#include "server/engine/round_outcome.h"
#include "server/engine/tables.h"
#include "slotwise/status.h"
#include "slotwise/types.h"

namespace slotwise {

// Eviction says what one batch evicted from a table. All but `spared` is alike on every rank.
struct Eviction {
  TableId table{0};
  EvictionPlace last;       // all rows up to this place went, except those of the batch's keys
  EvictedSums all;          // of the rows that went on all ranks
  EvictedAges ages;         // of the rows that went on all ranks, at the batch
  std::vector<Key> spared;  // this rank's rows up to `last` that stayed, because the batch has their keys
};

// Returns an upper bound of the bytes that a journal has of an eviction on a rank that spared so many keys.
constexpr std::uint64_t EvictionBytes(std::uint64_t spared) { return 64 + spared * sizeof(Key); }

class Evictor {
 public:
  // Called before rows of a shard are erased.
  using BeforeChange = std::function<void(const Shard&, FoundBatch&)>;

  // `collective` outlives it.
  explicit Evictor(Collective& collective, BeforeChange before_change = {})
      : collective_(collective), before_change_(std::move(before_change)) {}

  // Returns the most rows that a table may have after a batch.
  static std::uint64_t MostRows(const TableOptions& options);

  // A table that evicts, and the prepared batch that would give it more than MostRows.
  struct Full {
    Table* table = nullptr;
    NewBatch* batch = nullptr;
    std::uint64_t rows = 0;      // on all ranks
    std::uint64_t new_rows = 0;  // on all ranks
    std::uint64_t mine = 0;      // new rows on this rank
  };
  // Returns OK, or why this rank has no room, such as in its journal, to record so many spared keys of one
  // more table.
  using RoomForSpared = std::function<Status(std::uint64_t keys)>;
  // Evicts rows of all these tables, or of none. The batches are spent. Collective; the outcome is the same
  // on every rank, but for the words of a refusal. RESOURCE_EXHAUSTED: the batch's own keys do not fit into a
  // table; a rank would hold more than limits.max_rank_percent allows; a rank has no memory, or no `room`.
  // `refused` becomes the index of the table that is why.
  Status Evict(std::span<const Full> tables, const RoomForSpared& room, std::size_t& refused);

  // Returns the last of a table's `count` first places in the order of eviction; nothing if it has no rows.
  // Collective. REQUIRES: count > 0.
  std::optional<EvictionPlace> LastOf(const Table& table, std::uint64_t count);
  // Removes the rows whose places in `order` are not behind `last`. Collective. RESOURCE_EXHAUSTED, and
  // nothing has changed: a rank has no memory to list its rows.
  Result<EvictedSums> Remove(Table& table, const EvictionOrder& order, const EvictionPlace& last,
                             Removal why);

  // Adds the keys that go on this rank to `outcome`, from now on; null: to none.
  void NoteIn(RoundOutcome* outcome) { outcome_ = outcome; }

  // Returns what the last call of Evict has evicted, by table.
  std::span<const Eviction> evictions() const { return evictions_; }
  // Forgets them.
  void Clear() { evictions_.clear(); }

  // Removes rows again, by a journal's record: those up to `last` except the protected ones. Adds what goes
  // on this rank to `evicted`, and the keys to `outcome` if it is not null. Not collective.
  // RESOURCE_EXHAUSTED: no memory.
  static Status Replay(const Table& table, const EvictionOrder& order, const EvictionPlace& last,
                       EvictedSums& evicted, RoundOutcome* outcome, Removal why);

 private:
  // Has what this rank is to erase.
  struct Planned {
    std::optional<ErasableBatch> batch;
    EvictedSums mine;
    EvictedAges ages;
  };
  // Finds the last of `count` places of unprotected rows, on all ranks. Lowers `count` to the number of such
  // rows if there are fewer. REQUIRES: count > 0.
  std::optional<EvictionPlace> FindLast(Shard& shard, const EvictionOrder& order, std::uint64_t& count);
  // Fills `eviction` and `planned`. Collective.
  Status Plan(const Full& full, const RoomForSpared& room, Eviction& eviction, Planned& planned);

  Collective& collective_;
  const BeforeChange before_change_;
  RoundOutcome* outcome_ = nullptr;
  std::vector<Eviction> evictions_;
  std::vector<std::uint64_t> counts_;  // of the next digit
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_EVICTOR_H_
