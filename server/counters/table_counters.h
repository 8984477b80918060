// TableCounters: a rank's counters of one table, and the state of its slice.
//
// The engine's thread writes, with a few additions a round. New and erased rows are the differences of the
// rows of two Notes, so no counter is updated by key. A part of a step counts once, when its step is applied.
// Thread-safety: one thread calls Begin, Alter, Note and the other Counts; any thread calls CountNonFinite,
// SampleKeys and Read. A reading is no snapshot.
#ifndef SLOTWISE_SERVER_COUNTERS_TABLE_COUNTERS_H_
#define SLOTWISE_SERVER_COUNTERS_TABLE_COUNTERS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>

#include "server/counters/hot_keys.h"
#include "server/counters/steps_counter.h"
#include "slotwise/power_histogram.h"
#include "slotwise/probe_lengths.h"
#include "slotwise/types.h"

namespace slotwise {

// A table's state on a rank: rows, cells and bytes are of the rank's slice, the others are of the table.
struct TableState {
  std::uint64_t rows = 0;
  std::uint64_t cells = 0;  // of the hash table, used or free
  std::uint64_t bytes = 0;  // of device memory, for hash table and rows
  std::uint64_t steps = 0;  // optimizer steps applied
  // Numbers of lookup rounds and of steps, by how their bags travelled between ranks.
  std::uint64_t all_bags = 0;
  std::uint64_t owned_bags = 0;
  // The steps' keys in the slice, counted as often as they occurred, and the rows that the steps updated.
  std::uint64_t step_keys = 0;
  std::uint64_t step_rows = 0;
  std::uint64_t refused_keys = 0;  // keys of steps in the slice that got no row, counted likewise
  ProbeLengths probes = {};        // of sampled searches in the hash table
};

// Counts of the requests that came to this rank and got a round.
struct BatchCounts {
  std::uint64_t samples = 0;
  std::uint64_t keys = 0;
  friend bool operator==(const BatchCounts&, const BatchCounts&) = default;
};

// A sum of squares of numbers, and how many numbers there are.
struct SquareSum {
  double squares = 0;
  std::uint64_t numbers = 0;
  friend bool operator==(const SquareSum&, const SquareSum&) = default;
};

// A reading of TableCounters.
struct TableStats {
  std::string name;
  std::uint64_t max_rows = 0;  // over all ranks
  bool evicts = false;         // a full table evicts rows, and refuses no new keys
  TableState state = {};
  std::uint64_t new_rows = 0;      // inserted on this rank
  std::uint64_t erased_rows = 0;   // on this rank
  std::uint64_t evicted_rows = 0;  // on this rank; not among the erased ones
  std::uint64_t expired_rows = 0;  // the same
  // The ages of those that went because the table was full; and of the last such eviction the least age that
  // a row of any rank can have had, if there was one.
  EvictedAges evicted_ages = {};
  std::optional<std::uint64_t> youngest_evicted = {};
  BatchCounts lookups = {};
  BatchCounts pushes = {};
  std::uint64_t non_finite_pushes = 0;  // refused by this rank
  HotKeyStats hot_keys = {};            // in lookups and pushes that came to this rank
  // For the parts of applied steps that came to this rank: the number of the table's steps between the lookup
  // of a part's rows and the part's own step, and a sample of the gradients.
  StepsStats staleness = {};
  SquareSum gradients = {};
};

class TableCounters {
 public:
  TableCounters(std::string name, std::uint64_t max_rows, bool evicts = false)
      : name_(std::move(name)), max_rows_(max_rows), evicts_(evicts) {}

  // Sets the state from which counting begins: existing rows do not count as new, and earlier steps and
  // searches do not count.
  void Begin(const TableState& state);
  // Notes that the table was altered.
  void Alter(std::uint64_t max_rows, bool evicts) {
    max_rows_.store(max_rows, std::memory_order_relaxed);
    evicts_.store(evicts, std::memory_order_relaxed);
  }
  // Notes the table's state after a round.
  void Note(const TableState& state);
  void CountLookups(const BatchCounts& more);
  void CountPushes(const BatchCounts& more);

  // Count rows of this rank that were evicted, or went because they had expired. Note comes later in the
  // round.
  void CountEvicted(std::uint64_t rows) { CountGone(evicted_rows_, rows); }
  void CountExpired(std::uint64_t rows) { CountGone(expired_rows_, rows); }
  // Counts the ages of rows of this rank that one eviction for a full table removed, and notes the least age
  // of its rows on any rank.
  void CountEvictedAges(const EvictedAges& mine, std::uint64_t youngest);

  // Counts a part of a step whose rows were looked up `steps` steps before its own step.
  void CountStaleness(std::uint64_t steps) { staleness_.Count(steps); }
  // Adds the sampled gradients of a part of a step. The sum stays finite: its maximum is the largest double.
  // REQUIRES: `more.squares` is finite, and not below 0.
  void CountGradients(const SquareSum& more);

  // Counts a push that was refused because a gradient is NaN or infinite.
  void CountNonFinite() { non_finite_pushes_.fetch_add(1, std::memory_order_relaxed); }

  // Samples the keys of a lookup or push.
  void SampleKeys(std::span<const Key> keys) { hot_keys_.Sample(keys); }

  TableStats Read() const;
  // Returns TableStats::new_rows.
  std::uint64_t new_rows() const { return new_rows_.load(std::memory_order_relaxed); }

 private:
  using Count = std::atomic<std::uint64_t>;
  struct Batches {
    Count samples = 0;
    Count keys = 0;
  };
  void CountGone(Count& counter, std::uint64_t rows);
  static void Add(Batches& batches, const BatchCounts& more);
  static BatchCounts ReadOf(const Batches& batches);
  ProbeLengths ReadProbes() const;
  EvictedAges ReadEvictedAges() const;

  const std::string name_;
  Count max_rows_;
  std::atomic<bool> evicts_;
  Count rows_ = 0, cells_ = 0, bytes_ = 0, steps_ = 0, all_bags_ = 0, owned_bags_ = 0;
  Count new_rows_ = 0, erased_rows_ = 0, evicted_rows_ = 0, expired_rows_ = 0;
  std::uint64_t gone_since_ = 0;  // evicted or expired since the last Note
  std::array<Count, EvictedAges::kBuckets> evicted_ages_ = {};
  Count evicted_ages_sum_ = 0;
  static constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();
  Count youngest_evicted_ = kNone;
  std::uint64_t step_keys_before_ = 0, step_rows_before_ = 0, refused_keys_before_ = 0;  // set by Begin
  Count step_keys_ = 0, step_rows_ = 0, refused_keys_ = 0;                               // since Begin
  ProbeLengths probes_before_;                                                           // set by Begin
  std::array<Count, ProbeLengths::kBuckets> probes_ = {};                                // since Begin
  Count probes_sum_ = 0;                                                                 // since Begin
  Count non_finite_pushes_ = 0;
  HotKeys hot_keys_;
  Batches lookups_, pushes_;
  StepsCounter staleness_;
  std::atomic<double> gradient_squares_ = 0;
  Count gradient_numbers_ = 0;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_COUNTERS_TABLE_COUNTERS_H_
