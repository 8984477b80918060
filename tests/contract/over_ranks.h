// The suite's backends if each rank is a process that mpirun started.
//
// Every process runs the same tests. If ranks are no longer at the same test, all of them end at once; a rank
// that waits too long for another ends, too.
#ifndef SLOTWISE_TESTS_CONTRACT_OVER_RANKS_H_
#define SLOTWISE_TESTS_CONTRACT_OVER_RANKS_H_

#include <memory>
#include <vector>

#include "tests/contract/contract_test.h"

namespace slotwise::test {

// Collective, before the first test. On more than two ranks, leaves out tests of a rank's own rows alone,
// unless the command line has a filter. `./dev test all` runs all tests.
void LeaveOutWhatMoreRanksDoNotChange();

// Called before the first test.
std::vector<Backend> BackendsOverRanks();

// Collective, within a test. Returns null if the backend does not run on that number of ranks.
std::shared_ptr<Cluster> ClusterOverRanks(const Backend& backend);

}  // namespace slotwise::test

#endif  // SLOTWISE_TESTS_CONTRACT_OVER_RANKS_H_
