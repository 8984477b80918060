// Plan: the decisions that a seed makes about its simulation before it begins.
// Thread-safety: plain values.
#ifndef SLOTWISE_TESTS_SIM_PLAN_H_
#define SLOTWISE_TESTS_SIM_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/slow_growth.h"
#include "server/engine/engine.h"
#include "slotwise/table_options.h"
#include "tests/sim/scheduler.h"
#include "tests/sim/sim_exchange.h"

namespace slotwise::sim {

struct Plan {
  std::uint64_t seed = 0;
  int ranks = 1;
  bool apart = false;  // devices with memory of their own, whose work is delayed
  ExchangeKind exchange = ExchangeKind::kBlocking;
  EngineOptions engine = {};
  std::vector<TableOptions> tables = {};  // tables that clients may create
  std::uint64_t distinct_keys = 40;
  std::uint64_t asks = 100;                     // of all clients together
  std::uint64_t eval_percent = 33;              // of lookups
  std::uint64_t weighted_percent = 25;          // of batches
  std::uint64_t other_percent = 20;             // of requests that are neither lookups nor pushes
  std::uint64_t client_pause = 10;              // a client acts at one event in this many
  std::uint64_t device_pause = 2;               // a device does a piece of work at one event in this many
  std::uint64_t device_steps = 0;               // the most pieces of work that a device does at a call
  std::optional<std::size_t> slow_stream = {};  // a stream that rarely works unless waited for
  std::uint64_t freeze_pause = 0;  // a rank stops for a while at one event in this many; 0: never
  std::uint64_t short_pause = 0;   // some ranks have no memory in one round in this many; 0: never
  std::uint64_t kill_at = 0;       // a rank dies at this event; 0: no rank dies
  std::uint64_t stop_at = 0;       // a rank is asked to stop at this event; 0: once the clients are done
  std::uint32_t shared_buffer_calls = 0;         // in flight on a connection; 0: no shared buffers
  std::uint64_t shared_buffer_leave_pause = 50;  // such a client hangs up at one event in this many
  Time longest_jump = 1000;                      // of time, while all ranks wait
  Time slowest_wake = 2000;
};

Plan MakePlan(std::uint64_t seed);

// Returns what lets hash tables be in the middle of their growth for long: of every second seed.
std::optional<SlowGrowth> SlowGrowthOf(std::uint64_t seed);

// Returns a line for a person.
std::string Describe(const Plan& plan);

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_PLAN_H_
