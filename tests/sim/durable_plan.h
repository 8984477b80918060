// DurablePlan: the decisions that a seed makes about a server's lives before they begin.
// Thread-safety: plain values.
#ifndef SLOTWISE_TESTS_SIM_DURABLE_PLAN_H_
#define SLOTWISE_TESTS_SIM_DURABLE_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "server/engine/durability_options.h"
#include "slotwise/table_options.h"
#include "tests/durability/sim_files.h"
#include "tests/sim/plan.h"

namespace slotwise::sim {

// One life, from a start of the server to its end. `ranks.kill_at` and the like count the life's events.
struct LifePlan {
  Plan ranks;  // ranks, devices, clients
  DurabilityOptions durability;
  bool kills_all = false;     // at ranks.kill_at all ranks die; else one dies, and the others follow
  bool breaks = false;        // instead the one rank's device breaks, and its engine ends with an error
  bool power_fails = false;   // after the end, bytes that were not synced may be lost
  std::uint64_t fail_at = 0;  // this file operation of the life fails; 0: none
  SimFiles::Fault fault = SimFiles::Fault::kBroken;
  std::uint64_t full_at = 0;  // from this event on the disk has `room` bytes left; 0: never
  std::uint64_t room_at = 0;  // from this event on the disk has space again
  std::uint64_t room = 0;

  // Returns whether the disk may refuse updates.
  bool MayRefuse() const {
    return fail_at > 0 || full_at > 0 || durability.mode == DurabilityMode::kInterval;
  }
};

struct DurablePlan {
  std::uint64_t seed = 0;
  bool whole_numbers = false;        // SGD of whole numbers, with rate 1
  bool damage = false;               // all lives are in sync mode, and files are damaged between them
  std::vector<TableOptions> tables;  // that clients may create
  std::vector<LifePlan> lives;       // the last one ends only when all state was checked
};

DurablePlan MakeDurablePlan(std::uint64_t seed);

// Returns some lines for a person.
std::string Describe(const DurablePlan& plan);

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_DURABLE_PLAN_H_
