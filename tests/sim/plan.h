// Plan: what a seed decides about its simulation before it begins.
//
// Thread-safety: plain values.
#ifndef SLOTWISE_TESTS_SIM_PLAN_H_
#define SLOTWISE_TESTS_SIM_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/engine/engine.h"
#include "slotwise/table_options.h"
#include "tests/sim/scheduler.h"
#include "tests/sim/sim_exchange.h"

namespace slotwise::sim {

struct Plan {
  std::uint64_t seed = 0;
  int ranks = 1;
  bool apart = false;  // devices with memory of their own, which work late
  ExchangeKind exchange = ExchangeKind::kBlocking;
  EngineOptions engine = {};
  std::vector<TableOptions> tables = {};  // that clients may create
  std::uint64_t distinct_keys = 40;
  std::uint64_t asks = 100;                     // of all clients together
  std::uint64_t eval_percent = 33;              // of lookups
  std::uint64_t weighted_percent = 25;          // of batches
  std::uint64_t other_percent = 20;             // of requests that are neither lookups nor pushes
  std::uint64_t client_pause = 10;              // a client acts at one of so many events
  std::uint64_t device_pause = 2;               // a device does a piece of work at one of so many events
  std::uint64_t device_steps = 0;               // pieces of work, at most, that a device does at a call
  std::optional<std::size_t> slow_stream = {};  // of a device, which hardly does anything unasked
  std::uint64_t freeze_pause = 0;               // a rank stops for a while at one of so many events; 0: never
  std::uint64_t short_pause = 0;  // some ranks have no memory in one of so many rounds; 0: never
  std::uint64_t kill_at = 0;      // a rank dies at this event; 0: none does
  std::uint64_t stop_at = 0;      // a rank is asked to stop at this event; 0: when the clients are done
  std::uint32_t shared_buffer_calls =
      0;  // that a connection may have under way; 0: no client has a shared buffer
  std::uint64_t shared_buffer_leave_pause = 50;  // such a client hangs up at one of so many events
  Time longest_jump = 1000;                      // of time while all wait
  Time slowest_wake = 2000;
};

Plan MakePlan(std::uint64_t seed);

// In a line, for a person.
std::string Describe(const Plan& plan);

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_PLAN_H_
