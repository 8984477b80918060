// A Collective is how ranks agree, in host memory. (exchange.h moves the arrays of a batch.) There is one
// implementation for one rank (solo) and one for MPI, which ranks that share a host's memory use little.
//
// Every call but Wake, PollWake, bell and the getters is collective: all ranks make the same calls in the
// same order, and a call returns when this rank's part of the result has arrived. Waiting ranks yield their
// core.
// Thread-safety: one thread at a time (the engine's).
// Errors: std::runtime_error with the call and the transport's message, because a rank that cannot
// communicate cannot go on. The watchdog notices a call that does not end.
#ifndef SLOTWISE_SERVER_COLLECTIVE_COLLECTIVE_H_
#define SLOTWISE_SERVER_COLLECTIVE_COLLECTIVE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "server/collective/bell.h"
#include "server/collective/watchdog.h"
#include "slotwise/types.h"

namespace slotwise {

class HostMeeting;

class Collective {
 public:
  virtual ~Collective() = default;
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;

  virtual Rank rank() const = 0;
  virtual int size() const = 0;
  // This rank's number among the ranks on its machine, and their number.
  virtual int local_rank() const = 0;
  virtual int local_size() const = 0;

  // Sets all[r · mine.size() ...] to rank r's `mine`, for every rank r.
  // REQUIRES: all ranks' sizes are equal; all.size() = size() · mine.size().
  virtual void AllGather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;

  // Does the same, but only the first `used` bytes of `mine` mean something; `used` may differ from rank to
  // rank. The bytes behind a rank's `used` ones in `all` may stay as they were.
  virtual void AllGatherBegins(std::span<const std::byte> mine, std::size_t /*used*/,
                               std::span<std::byte> all) {
    AllGather(mine, all);
  }

  // Sets values[i] to the sum of all ranks' values[i], modulo 2^64.
  virtual void AllReduceSum(std::span<std::uint64_t> values) = 0;

  // Idle ranks make no collective calls; they wait until a rank has work. Wake tells all other ranks that
  // this rank is about to end the wait numbered `wait` (all ranks count waits alike). Does not wait for the
  // other ranks.
  virtual void Wake(std::uint64_t wait) = 0;
  // Returns true if another rank called Wake(`wait`). Forgets older wakes. Does not block.
  virtual bool PollWake(std::uint64_t wait) = 0;
  // Returns the bell that other ranks' Wake rings, and that any thread of this rank may ring. Returns null if
  // there is none; then a thread that waits for a wake has to poll.
  virtual Bell* bell() { return nullptr; }

  // Returns where the ranks meet if all of them share a host's memory; else null. Small arrays travel there.
  // A meeting counts as one of this rank's collectives, in their order.
  virtual HostMeeting* meeting() { return nullptr; }

  // Watches this rank's collectives, and those of its Exchange.
  Watchdog& watchdog() { return watchdog_; }

 protected:
  Collective() = default;

 private:
  Watchdog watchdog_;
};

// Collective. Returns every rank's `mine`, in rank order. All bytes of a T travel, padding too, so a T must
// have no padding, or zeros in it.
template <class T>
std::vector<T> AllGatherValues(Collective& collective, const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(static_cast<std::size_t>(collective.size()));
  collective.AllGather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  return all;
}

// Collective. Returns every rank's text, in rank order.
std::vector<std::string> AllGatherTexts(Collective& collective, const std::string& mine);

// Makes the Collective of a server of one rank.
std::unique_ptr<Collective> MakeSoloCollective();

// Makes the Collective of every process of MPI_COMM_WORLD. If all of them can share a host's memory, and none
// forbids it, they meet there, and MPI carries only large arrays.
// REQUIRES: MpiSession below has initialised MPI, and outlives the result.
enum class HostMemoryUse : std::uint8_t { kAllowed, kForbidden };
std::unique_ptr<Collective> MakeMpiCollective(HostMemoryUse use = HostMemoryUse::kAllowed);

// Returns true if mpirun (or another PMIx launcher) started this process with a world to join.
bool LaunchedByMpi();

// Calls MPI_Init and MPI_Finalize around a scope. A process has at most one.
class MpiSession {
 public:
  MpiSession();
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  // Ends every rank at once with `exit_code`, after an error that only this rank has seen. Does not return.
  [[noreturn]] static void AbortAllRanks(int exit_code);
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_COLLECTIVE_COLLECTIVE_H_
