// DurableSimulation runs one seed: several lives of a server, one after the other, on files that forget bytes
// that were not synced. After each recovery, on any number of ranks, the state must equal that of plain code.
// It must have every operation that clients were told of, and no operation twice or in part.
//
// Thread-safety: RunDurableSeed may run on several threads at once, each with a seed of its own.
#ifndef SLOTWISE_TESTS_SIM_DURABLE_SIMULATION_H_
#define SLOTWISE_TESTS_SIM_DURABLE_SIMULATION_H_

#include <cstdint>
#include <string>

#include "tests/durability/sim_files.h"
#include "tests/sim/durable_clients.h"
#include "tests/sim/durable_history.h"
#include "tests/sim/durable_plan.h"

namespace slotwise::sim {

// The counts of one life, or their sums over several.
struct LifeOutcome {
  std::uint64_t lives = 0;
  std::uint64_t events = 0;
  std::uint64_t recoveries = 0;         // recoveries that were compared with the oracle
  std::uint64_t begun = 0;              // lives whose servers recovered
  std::uint64_t failed_recoveries = 0;  // recoveries of a rank that failed by a disk error
  std::uint64_t damages = 0;            // damages of checkpoints
  std::uint64_t journal_damages = 0;
  std::uint64_t torn = 0;              // acknowledged updates lost to damage of a journal's end
  std::uint64_t refused_damages = 0;   // recoveries of a rank that refused damaged files
  std::uint64_t replayed = 0;          // rounds replayed
  std::uint64_t from_checkpoints = 0;  // recoveries from checkpoints
  std::uint64_t saved = 0;             // checkpoints saved on demand
  std::uint64_t deltas = 0;            // deltas among these
  std::uint64_t requests = 0;
  std::uint64_t acknowledged = 0;  // acknowledged updates
  std::uint64_t refused = 0;       // updates refused by the disk
  std::uint64_t lost = 0;          // acknowledged updates lost, as their mode allows
  Time longest_loss = 0;           // in interval mode
  std::uint64_t kills = 0;
  std::uint64_t breaks = 0;  // broken devices
  std::uint64_t power_failures = 0;
  std::uint64_t disk_failures = 0;  // disk errors that ended a rank
  std::uint64_t clean_ends = 0;
  std::uint64_t evicted = 0;  // rows, of lives that were compared at their end
  std::uint64_t expired = 0;  // the same
  std::uint64_t full = 0;     // operations refused, because a table that evicts had no room
  std::uint64_t trace_hash = 0;

  void Add(const LifeOutcome& other);
};

struct DurableResult {
  LifeOutcome outcome;
  std::string plan;
  std::string failure;  // empty: all promises were kept
};

// `print` prints every event on standard output.
DurableResult RunDurableSeed(std::uint64_t seed, bool print = false);

// Runs one life, from its recovery to its end, on the files of earlier lives. Engines, threads of journals
// and checkpoints, and file operations take turns under a scheduler; all or some may be killed at any turn.
// `damaged`: a recovery may refuse the files. Returns what is wrong, or nothing.
std::string Live(const LifePlan& plan, SimFiles& files, bool damaged, DurableHistory& history,
                 DurableClients& clients, bool print, LifeOutcome& outcome);

// Returns some lines for a person.
std::string Describe(const LifeOutcome& outcome);

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_DURABLE_SIMULATION_H_
