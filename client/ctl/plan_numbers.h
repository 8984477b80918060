// Computes the numbers of `slotwise-ctl plan`, by the formulas of docs/operations.md.
// Thread-safety: plain values and pure functions.
#ifndef SLOTWISE_CLIENT_CTL_PLAN_NUMBERS_H_
#define SLOTWISE_CLIENT_CTL_PLAN_NUMBERS_H_

#include <algorithm>
#include <cstdint>

#include "client/ctl/plan.h"
#include "slotwise/memory_plan.h"
#include "slotwise/sizing.h"

namespace slotwise::ctl {

inline constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// The words of the flags, checked and converted.
struct Shape {
  OptimizerKind optimizer = OptimizerKind::kSgd;
  DataType row_dtype = DataType::kFloat32;
  bool keeps_keys = false;          // whether rows' keys lie beside the rows (sizing::KeepsKeys)
  std::uint64_t value_bytes = 4;    // bytes of an element between trainers and ranks
  std::uint64_t partial_bytes = 4;  // bytes of an element of a partial sum between ranks
  bool gpu = true;
  bool keeps = false;  // whether there is a data folder
  bool sync = false;
  std::uint64_t bags = 0;  // per step
  std::uint64_t keys = 0;
};

// A rank's part of the table.
struct RankPart {
  std::uint64_t share = 0;  // rows of the rank that owns the most buckets
  // The share and six standard deviations: no rank has more rows, except once in a billion times.
  std::uint64_t most = 0;
  std::uint64_t row_bytes = 0;   // values, optimizer state and score, as files have them
  std::uint64_t copy_bytes = 0;  // the same, as snapshots copy a row: all in floats
};

// The memory that the table takes on a rank's device.
struct TableMemory {
  std::uint64_t cells = 0;
  std::uint64_t cells_bytes = 0;
  std::uint64_t rows_bytes = 0;       // with the optimizer's state
  std::uint64_t old_cells_bytes = 0;  // the old hash table, during the last doubling
  std::uint64_t marks_bytes = 0;      // the marks of rows that changed since the last checkpoint
  std::uint64_t counter_bytes = 0;    // the Bloom counter: blocks, hash table and marks; it never grows

  std::uint64_t table() const {
    return cells_bytes + rows_bytes;
  }  // as `describe` shows, without the counter
  std::uint64_t peak() const { return table() + old_cells_bytes + marks_bytes + counter_bytes; }
};

// The memory that a rank takes of its host, without the tables of a CPU backend.
struct HostMemory {
  sizing::SetAside aside;  // in MiB
  std::uint64_t lists = 0;

  std::uint64_t all() const { return aside.all() * kMiB + lists; }
};

struct Network {
  std::uint64_t to_server = 0;    // bytes per step, from all trainers
  std::uint64_t from_server = 0;  // bytes per step, to all trainers
  std::uint64_t all_bags = 0;     // bytes per step that a rank sends to other ranks, and receives
  std::uint64_t owned_bags = 0;
  std::uint64_t rank_bytes = 0;  // bytes per step of the busier direction
  double seconds = 0;
};

struct Disk {
  std::uint64_t checkpoint = 0;
  double checkpoint_seconds = 0;
  std::uint64_t delta = 0;      // at most, for the rows changed since the checkpoint before
  double training_seconds = 0;  // of a checkpoint that a CPU backend writes while it trains
  std::uint64_t journal_a_step = 0;
  double journal_rate = 0;  // bytes per second
  std::uint64_t most = 0;   // the most that the folder takes
  double read_seconds = 0;
  double replay_seconds = 0;
};

// All that a plan says.
struct PlanNumbers {
  PlanFlags flags;
  Shape shape;
  RankPart part;
  TableMemory ahead;  // if the table is made with `initial_rows`
  TableMemory grown;  // the most, if the table is made without and grows
  std::uint64_t snapshot_ahead = 0, snapshot_grown = 0;
  std::uint64_t stages = 0;
  sizing::MemoryPlan memory;
  HostMemory host;
  Network network;
  std::uint64_t round = 0, step = 0;
  Disk disk;

  // Returns the bytes that the device must have. On a GPU, tables must leave a sixteenth free, and the arrays
  // of rounds must fit. On a CPU, rounds, copies of rows and lists are within the host's set-aside memory.
  std::uint64_t Device(const TableMemory& tables, std::uint64_t snapshot) const {
    if (!shape.gpu) return tables.peak();
    const std::uint64_t bytes = tables.peak() + snapshot;
    return std::max(sizing::DivideUp(bytes * sizing::kKeptFromTables, sizing::kKeptFromTables - 1),
                    bytes + stages);
  }
  std::uint64_t device_ahead() const { return Device(ahead, snapshot_ahead); }
  std::uint64_t device_grown() const { return Device(grown, snapshot_grown); }
  // With a CPU backend, tables lie in the host's memory.
  std::uint64_t HostWith(std::uint64_t device) const { return host.all() + (shape.gpu ? 0 : device); }
};

// REQUIRES: the numbers are within their bounds, and `shape` is derived from `flags`.
PlanNumbers NumbersOf(const PlanFlags& flags, const Shape& shape);

}  // namespace slotwise::ctl

#endif  // SLOTWISE_CLIENT_CTL_PLAN_NUMBERS_H_
