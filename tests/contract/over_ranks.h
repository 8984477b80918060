// The backends of the suite where each rank is a process that mpirun started.
//
// Every process runs the same tests. Ranks that are no longer at the same test end at once, all of them; so
// does who waits for another too long.
#ifndef SLOTWISE_TESTS_CONTRACT_OVER_RANKS_H_
#define SLOTWISE_TESTS_CONTRACT_OVER_RANKS_H_

#include <memory>
#include <vector>

#include "tests/contract/contract_test.h"

namespace slotwise::test {

// Before the first test, unless the command line has a filter: of more than two ranks, leaves out what a rank
// does with its own rows alone; only `./dev test all` has all of it. Collective.
void LeaveOutWhatMoreRanksDoNotChange();

// Before the first test.
std::vector<Backend> BackendsOverRanks();

// Collective, within a test. Null if the backend does not run on as many ranks.
std::shared_ptr<Cluster> ClusterOverRanks(const Backend& backend);

}  // namespace slotwise::test

#endif  // SLOTWISE_TESTS_CONTRACT_OVER_RANKS_H_
