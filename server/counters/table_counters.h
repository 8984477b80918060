// TableCounters: what a rank counts of one table, and says of its slice of it.
//
// The engine's thread writes, a few additions a round; the number of rows that came or went is the difference
// of two of its notes, so that nothing is counted by key. Thread-safety: Begin, Note and the Counts by one
// thread; CountNonFinite, SampleKeys and Read by any. A reading is of no one instant. A part of a step counts
// once, when its step is applied.
#ifndef SLOTWISE_SERVER_COUNTERS_TABLE_COUNTERS_H_
#define SLOTWISE_SERVER_COUNTERS_TABLE_COUNTERS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <string>

#include "server/counters/hot_keys.h"
#include "server/counters/steps_counter.h"
#include "slotwise/probe_lengths.h"
#include "slotwise/types.h"

namespace slotwise {

// A table's state on a rank: rows, cells and bytes are of the rank's slice, the others are of the table.
struct TableState {
  std::uint64_t rows = 0;
  std::uint64_t cells = 0;  // of the hash table, taken or free
  std::uint64_t bytes = 0;  // of device memory, for hash table and rows
  std::uint64_t steps = 0;  // optimizer steps applied
  // Rounds of lookups, and steps, by how their bags travelled between ranks.
  std::uint64_t all_bags = 0;
  std::uint64_t owned_bags = 0;
  // Of steps, of the slice: keys, each as often as it occurred, and rows that a step updated.
  std::uint64_t step_keys = 0;
  std::uint64_t step_rows = 0;
  ProbeLengths probes = {};  // of sampled searches in the slice's hash table
};

// Of the requests that came to this rank, and got a round.
struct BatchCounts {
  std::uint64_t samples = 0;
  std::uint64_t keys = 0;
  friend bool operator==(const BatchCounts&, const BatchCounts&) = default;
};

// A sum of the squares of numbers, and how many numbers they are.
struct SquareSum {
  double squares = 0;
  std::uint64_t numbers = 0;
  friend bool operator==(const SquareSum&, const SquareSum&) = default;
};

// What Read returns.
struct TableStats {
  std::string name;
  std::uint64_t max_rows = 0;  // of all ranks together
  TableState state = {};
  std::uint64_t new_rows = 0;     // that keys got on this rank
  std::uint64_t erased_rows = 0;  // of this rank
  BatchCounts lookups = {};
  BatchCounts pushes = {};
  std::uint64_t non_finite_pushes = 0;  // that this rank refused
  HotKeyStats hot_keys = {};            // of the lookups and pushes that came to this rank
  // Of the parts of applied steps that came to this rank: how many steps the table got between the lookup of
  // a part's rows and the part's own step, and a sample of the gradients.
  StepsStats staleness = {};
  SquareSum gradients = {};
};

class TableCounters {
 public:
  TableCounters(std::string name, std::uint64_t max_rows) : name_(std::move(name)), max_rows_(max_rows) {}

  // The table begins as this: rows that are there already did not come, and steps and searches of before are
  // not counted.
  void Begin(const TableState& state);
  // The table is as this now, after a round.
  void Note(const TableState& state);
  void CountLookups(const BatchCounts& more);
  void CountPushes(const BatchCounts& more);

  // A part of a step has rows that are this many steps older than those that the step updates.
  void CountStaleness(std::uint64_t steps) { staleness_.Count(steps); }
  // A part of a step has these sampled gradients. The sum stays finite: it ends at the largest double.
  // REQUIRES: `more.squares` is finite, and not below 0.
  void CountGradients(const SquareSum& more);

  // A push was refused because a gradient is NaN or infinite.
  void CountNonFinite() { non_finite_pushes_.fetch_add(1, std::memory_order_relaxed); }

  // A lookup or push has these keys.
  void SampleKeys(std::span<const Key> keys) { hot_keys_.Sample(keys); }

  TableStats Read() const;

 private:
  using Count = std::atomic<std::uint64_t>;
  struct Batches {
    Count samples = 0;
    Count keys = 0;
  };
  static void Add(Batches& batches, const BatchCounts& more);
  static BatchCounts ReadOf(const Batches& batches);
  ProbeLengths ReadProbes() const;

  const std::string name_;
  const std::uint64_t max_rows_;
  Count rows_ = 0, cells_ = 0, bytes_ = 0, steps_ = 0, all_bags_ = 0, owned_bags_ = 0;
  Count new_rows_ = 0, erased_rows_ = 0;
  std::uint64_t step_keys_before_ = 0, step_rows_before_ = 0;  // by Begin
  Count step_keys_ = 0, step_rows_ = 0;                        // since
  ProbeLengths probes_before_;                                 // by Begin
  std::array<Count, ProbeLengths::kBuckets> probes_ = {};      // since
  Count probes_sum_ = 0;                                       // likewise
  Count non_finite_pushes_ = 0;
  HotKeys hot_keys_;
  Batches lookups_, pushes_;
  StepsCounter staleness_;
  std::atomic<double> gradient_squares_ = 0;
  Count gradient_numbers_ = 0;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_COUNTERS_TABLE_COUNTERS_H_
