// DurableSimulation: one seed of a server's lives, one after the other on the same files, which forget what
// was not synced. After each recovery, on however many ranks, the state is that of plain code that did what
// clients were told, and nothing twice or in part.
//
// Thread-safety: RunDurableSeed may run on several threads at once, each with a seed of its own.
#ifndef SLOTWISE_TESTS_SIM_DURABLE_SIMULATION_H_
#define SLOTWISE_TESTS_SIM_DURABLE_SIMULATION_H_

#include <cstdint>
#include <string>

#include "tests/sim/durable_life.h"

namespace slotwise::sim {

struct DurableResult {
  LifeOutcome outcome;
  std::string plan;
  std::string failure;  // empty: all promises were kept
};

// `print`: every event goes to standard output.
DurableResult RunDurableSeed(std::uint64_t seed, bool print = false);

// In some lines, for a person.
std::string Describe(const LifeOutcome& outcome);

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_DURABLE_SIMULATION_H_
