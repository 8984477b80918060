// Initialises and finalises MPI in this process.
#include <mpi.h>

#include <cstdlib>

#include "server/collective/collective.h"
#include "server/collective/mpi_check.h"

namespace slotwise {

MpiSession::MpiSession() {
  // One thread at a time calls MPI, but not always this thread.
  int provided = MPI_THREAD_SINGLE;
  SLOTWISE_MPI_TRY(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided));
  if (provided < MPI_THREAD_SERIALIZED) {
    throw std::runtime_error("this MPI library has no MPI_THREAD_SERIALIZED");
  }
}

MpiSession::~MpiSession() { MPI_Finalize(); }

void MpiSession::AbortAllRanks(int exit_code) {
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::abort();  // MPI_Abort should not return
}

}  // namespace slotwise
