// DurableSimulation: one seed of a server's lives, one after the other on the same files, which forget what
// was not synced. After each recovery, on however many ranks, the state is that of plain code that did what
// clients were told, and nothing twice or in part.
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

// Of one life, or summed over several.
struct LifeOutcome {
  std::uint64_t lives = 0;
  std::uint64_t events = 0;
  std::uint64_t recoveries = 0;         // that were compared with the oracle
  std::uint64_t begun = 0;              // lives of servers that recovered
  std::uint64_t failed_recoveries = 0;  // ranks', by a disk that failed
  std::uint64_t damages = 0;            // of checkpoints
  std::uint64_t journal_damages = 0;
  std::uint64_t torn = 0;              // acknowledged updates in the end of a journal that damage took
  std::uint64_t refused_damages = 0;   // ranks' recoveries that found no way around one
  std::uint64_t replayed = 0;          // rounds
  std::uint64_t from_checkpoints = 0;  // recoveries
  std::uint64_t saved = 0;             // checkpoints, on demand
  std::uint64_t deltas = 0;            // of them
  std::uint64_t requests = 0;
  std::uint64_t acknowledged = 0;  // updates
  std::uint64_t refused = 0;       // updates, by the disk
  std::uint64_t lost = 0;          // acknowledged updates, as their mode allows
  Time longest_loss = 0;           // in interval mode
  std::uint64_t kills = 0;
  std::uint64_t breaks = 0;  // of a rank's device
  std::uint64_t power_failures = 0;
  std::uint64_t disk_failures = 0;  // that ended a rank
  std::uint64_t clean_ends = 0;
  std::uint64_t trace_hash = 0;

  void Add(const LifeOutcome& other);
};

struct DurableResult {
  LifeOutcome outcome;
  std::string plan;
  std::string failure;  // empty: all promises were kept
};

// `print`: every event goes to standard output.
DurableResult RunDurableSeed(std::uint64_t seed, bool print = false);

// One life, from its recovery to its end: engines, their journals' and checkpoints' threads and their files
// take turns under a scheduler; all or some may be killed at any turn. It has the files that earlier lives
// left; `damaged`: so that a recovery may refuse them. Returns what is wrong, or nothing.
std::string Live(const LifePlan& plan, SimFiles& files, bool damaged, DurableHistory& history,
                 DurableClients& clients, bool print, LifeOutcome& outcome);

// In some lines, for a person.
std::string Describe(const LifeOutcome& outcome);

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_DURABLE_SIMULATION_H_
