// Runs the suite, and initialises MPI around GoogleTest if mpirun started it.
#include <gtest/gtest.h>

#include <optional>

#include "server/collective/collective.h"
#include "tests/contract/over_ranks.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  std::optional<slotwise::MpiSession> session;
  if (slotwise::LaunchedByMpi()) {
    session.emplace();
    slotwise::test::LeaveOutWhatMoreRanksDoNotChange();
  }
  return RUN_ALL_TESTS();
}
