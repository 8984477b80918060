// main() of the suite: MPI around GoogleTest if mpirun started it.
#include <gtest/gtest.h>

#include <optional>

#include "server/collective/collective.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  std::optional<slotwise::MpiSession> session;
  if (slotwise::LaunchedByMpi()) session.emplace();
  return RUN_ALL_TESTS();
}
