// RoundSchedulerCost: the time of a scheduler's decision, by the number of ranks and of steps that wait for
// parts.
// Thread-safety: pure functions.
#ifndef SLOTWISE_TESTS_SIM_SCHEDULER_COST_H_
#define SLOTWISE_TESTS_SIM_SCHEDULER_COST_H_

#include <cstddef>

namespace slotwise::sim {

// Returns the processor seconds of a decision, the least of several tries. Each of `ranks` ranks proposes the
// same number of lookups and parts of steps every time, while `waiting` steps wait for parts that never come.
double SecondsOfDecision(std::size_t ranks, std::size_t waiting = 0);

// Prints a line for each number of ranks.
void PrintSchedulerCost();

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_SCHEDULER_COST_H_
