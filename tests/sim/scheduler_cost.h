// RoundSchedulerCost: how long a scheduler takes for a round, by the number of ranks and by how many steps
// wait for parts.
//
// Thread-safety: pure functions.
#ifndef SLOTWISE_TESTS_SIM_SCHEDULER_COST_H_
#define SLOTWISE_TESTS_SIM_SCHEDULER_COST_H_

#include <cstddef>

namespace slotwise::sim {

// Seconds of a processor a decision, the least of several tries: each of `ranks` ranks proposes the same
// number of lookups and parts of steps every time, beside `waiting` steps whose other parts do not come.
double SecondsOfDecision(std::size_t ranks, std::size_t waiting = 0);

// A line for each number of ranks.
void PrintSchedulerCost();

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_SCHEDULER_COST_H_
