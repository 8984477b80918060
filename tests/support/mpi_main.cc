// Runs the tests that need several ranks, and initialises MPI around GoogleTest.
#include <gtest/gtest.h>

#include "server/collective/collective.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const slotwise::MpiSession session;
  return RUN_ALL_TESTS();
}
