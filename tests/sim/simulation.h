// Simulation runs one seed from its plan to its end: ranks, clients and a referee, under a scheduler.
// Thread-safety: RunSeed may run on several threads at once, each with a seed of its own.
#ifndef SLOTWISE_TESTS_SIM_SIMULATION_H_
#define SLOTWISE_TESTS_SIM_SIMULATION_H_

#include <cstdint>
#include <string>

#include "tests/sim/shared_buffers.h"

namespace slotwise::sim {

// The counts of one seed, or their sums over several.
struct Outcome {
  std::uint64_t seeds = 0;
  std::uint64_t events = 0;
  std::uint64_t decisions = 0;
  std::uint64_t rounds = 0;
  std::uint64_t requests = 0;
  std::uint64_t answers = 0;
  std::uint64_t kills = 0;
  std::uint64_t early_stops = 0;
  std::uint64_t freezes = 0;
  std::uint64_t dropped_clients = 0;
  std::uint64_t full_request_queues = 0;   // requests that a full request queue refused
  SharedBufferCounts shared_buffers = {};  // of clients with shared buffers
  std::uint64_t slowest_round_us = 0;      // between two decisions of one rank, in virtual time
  std::uint64_t slowest_round_ns = 0;      // the same, in the processor time of the rank itself
  std::uint64_t trace_hash = 0;            // of one seed: the hash of all events

  void Add(const Outcome& other);
};

struct SeedResult {
  Outcome outcome;
  std::string plan;
  std::string failure;  // empty: no invariant was broken
};

// `print` prints every event on standard output.
SeedResult RunSeed(std::uint64_t seed, bool print = false);

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_SIMULATION_H_
