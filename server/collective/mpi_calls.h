// This room's MPI sources share these: communicators, counts, layouts, and a wait that leaves the core to
// other threads.
//
// Calls are non-blocking, and Await polls them, yields, and then sleeps, because MPI's own blocking calls
// burn a core, and ranks often share a core with each other, with gRPC and with the trainer.
#ifndef SLOTWISE_SERVER_COLLECTIVE_MPI_CALLS_H_
#define SLOTWISE_SERVER_COLLECTIVE_MPI_CALLS_H_

#include <mpi.h>
#include <sched.h>

#include <chrono>
#include <climits>
#include <cstddef>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "server/collective/mpi_check.h"

namespace slotwise {

// MPI's counts are ints. limits.max_round_mib keeps below INT_MAX the counts of one rank, and those of all
// ranks together where they count words.
inline int MpiCount(std::size_t count) {
  if (count > INT_MAX)
    throw std::runtime_error("a collective of " + std::to_string(count) + " elements a rank");
  return static_cast<int>(count);
}

// The layout of blocks that lie one after the other, each of sizes[r] / unit elements.
struct MpiLayout {
  explicit MpiLayout(std::span<const std::size_t> sizes, std::size_t unit = 1)
      : counts(sizes.size()), displacements(sizes.size()) {
    std::size_t all = 0;
    for (std::size_t r = 0; r < sizes.size(); ++r) {
      counts[r] = MpiCount(sizes[r] / unit);
      displacements[r] = MpiCount(all);
      all += sizes[r] / unit;
    }
  }
  std::vector<int> counts;
  std::vector<int> displacements;
};

// Returns when the requests have ended. Polls without pause first, then yields to other threads, then sleeps
// briefly between polls.
inline void Await(std::span<MPI_Request> requests) {
  constexpr int kSpins = 200;
  constexpr int kYields = 2000;
  for (int polls = 0;; ++polls) {
    int ended = 0;
    SLOTWISE_MPI_TRY(
        MPI_Testall(static_cast<int>(requests.size()), requests.data(), &ended, MPI_STATUSES_IGNORE));
    if (ended != 0) return;
    if (polls >= kSpins + kYields) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    } else if (polls >= kSpins) {
      sched_yield();
    }
  }
}

inline void Await(MPI_Request request) { Await(std::span(&request, 1)); }

// A Communicator belongs to its owner alone, so that the owner's messages meet no others.
class Communicator {
 public:
  explicit Communicator(MPI_Comm parent) {
    SLOTWISE_MPI_TRY(MPI_Comm_dup(parent, &comm_));
    SLOTWISE_MPI_TRY(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
  }
  ~Communicator() { MPI_Comm_free(&comm_); }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  MPI_Comm get() const { return comm_; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_COLLECTIVE_MPI_CALLS_H_
