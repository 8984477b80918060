// Every server calls this function, also one without MPI.
#include <cstdlib>

#include "server/collective/collective.h"

namespace slotwise {

bool LaunchedByMpi() {
  return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr || std::getenv("PMIX_RANK") != nullptr ||
         std::getenv("PMI_RANK") != nullptr;
}

}  // namespace slotwise
