// Collective: what ranks agree on, in host memory. (The arrays of a batch travel by exchange.h.) One implementation a
// transport: solo (one rank), MPI.
//
// Every call but Wake, PollWake and those that tell something of a rank is collective: all ranks make the same calls in the
// same order, and a call returns when this rank's part of the result is there. Waiting ranks yield their core.
// Thread-safety: one thread at a time (the engine's).
// Errors: std::runtime_error with the call and the transport's words; a rank that cannot talk cannot go on. Of a call
// that does not end, the watchdog knows.
#ifndef SLOTWISE_SERVER_COLLECTIVE_COLLECTIVE_H_
#define SLOTWISE_SERVER_COLLECTIVE_COLLECTIVE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "server/collective/watchdog.h"
#include "slotwise/types.h"

namespace slotwise {

class Collective {
 public:
  virtual ~Collective() = default;
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;

  virtual Rank rank() const = 0;
  virtual int size() const = 0;
  // Ranks on this rank's machine, and this rank's place among them.
  virtual int local_rank() const = 0;
  virtual int local_size() const = 0;

  // all[r · mine.size() ...] = rank r's `mine`. REQUIRES: equal sizes; all.size() = size() · mine.size().
  virtual void AllGather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;

  // values[i] = Σ over ranks of values[i], modulo 2^64.
  virtual void AllReduceSum(std::span<std::uint64_t> values) = 0;

  // Idle ranks make no collective calls: they wait until somebody has work. Wake tells all others that this rank is
  // about to open the wait numbered `wait` (they count waits alike). Does not wait for them.
  virtual void Wake(std::uint64_t wait) = 0;
  // True if another rank called Wake(`wait`); older wakes are forgotten. Does not block.
  virtual bool PollWake(std::uint64_t wait) = 0;

  // Of this rank's collectives, and of its Exchange's.
  Watchdog& watchdog() { return watchdog_; }

 protected:
  Collective() = default;

 private:
  Watchdog watchdog_;
};

// Collective. Every rank's `mine`, in rank order. All its bytes travel: of padding too, so let it have none, or zeros.
template <class T>
std::vector<T> Everyones(Collective& collective, const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(static_cast<std::size_t>(collective.size()));
  collective.AllGather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  return all;
}

// The only rank there is.
std::unique_ptr<Collective> MakeSoloCollective();

// Every process of MPI_COMM_WORLD. REQUIRES: MPI is initialised by MpiSession below, and outlives the result.
std::unique_ptr<Collective> MakeMpiCollective();

// True if this process was started by mpirun (or another PMIx launcher) with a world to join.
bool LaunchedByMpi();

// MPI_Init and MPI_Finalize around a scope. One a process.
class MpiSession {
 public:
  MpiSession();
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  // Ends every rank at once with `exit_code`, for an error that only this rank has seen. Does not return.
  [[noreturn]] static void AbortAllRanks(int exit_code);
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_COLLECTIVE_COLLECTIVE_H_
