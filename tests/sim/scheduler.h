// Scheduler: runs the ranks one at a time, in an order drawn from a seed, in virtual time.
//
// Each rank has a fiber, and all fibers run on one thread. A rank gives up its turn when it calls Yield or
// Await. Then the scheduler draws what happens next: an event of the world (a client's request, say), or a
// turn of another rank. Everything follows from the seed, so a seed that failed fails again.
// Thread-safety: one thread.
#ifndef SLOTWISE_TESTS_SIM_SCHEDULER_H_
#define SLOTWISE_TESTS_SIM_SCHEDULER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/fiber.h"
#include "tests/support/batches.h"

namespace slotwise::sim {

using test::Random;

// Virtual time, in microseconds since the simulation's begin.
using Time = std::uint64_t;
inline constexpr Time kNever = std::numeric_limits<Time>::max();

// Adds the listed counts of `other` to `sum`.
template <class Counts>
void AddCounts(Counts& sum, const Counts& other, std::initializer_list<std::uint64_t Counts::*> counts) {
  for (const auto count : counts) sum.*count += other.*count;
}

// Thrown in a rank to unwind it, when the rank is killed or the simulation is over.
struct RankEnded {};

// The events beside the ranks' own work.
class World {
 public:
  virtual ~World() = default;
  // Lets an event happen if it is due: a client acts, a device makes progress, or a rank is killed.
  virtual void Happen() = 0;
  // Called when no rank can go on at this time. Lets a client act and returns true, if a client is ready to.
  virtual bool HappenWhileIdle() = 0;
  // Returns how far time may jump while all ranks only wait for it, at least 1.
  virtual Time DrawJump() = 0;

 protected:
  World() = default;
};

struct SchedulerLimits {
  std::uint64_t events = 200'000;  // more than any seed needs
  Time stuck = 30'000'000;         // a rank that waits this long for others is stuck
  Time watchdog = 3'000'000;       // the same, if another rank is dead
};

class Scheduler {
 public:
  Scheduler(std::uint64_t seed, int ranks, World& world, const SchedulerLimits& limits = {});
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Runs `body(rank)` for each rank until all have returned.
  void Run(const std::function<void(int)>& body);

  // Lets other ranks run. Throws RankEnded.
  void Yield(int rank, const char* where);
  // Lets the rank wait until `ready()` holds or `deadline` has come. Throws RankEnded.
  void Await(int rank, std::string where, std::function<bool()> ready, Time deadline = kNever);
  // Lets the rank wait as well, for code that cannot throw. Returns false where Await throws.
  bool AwaitQuietly(int rank, std::string where, std::function<bool()> ready) noexcept;

  Time now() const { return now_; }
  std::uint64_t events() const { return events_; }
  // Returns the processor time of the rank's turns, including the events that happened in them.
  std::uint64_t SpentNanoseconds(int rank) const;
  int ranks() const { return static_cast<int>(ranks_.size()); }
  Random& random() { return random_; }

  // Lets the rank have no turn before `until`.
  void Freeze(int rank, Time until) { ranks_[Index(rank)]->frozen_until = until; }
  // Unwinds the rank at its next step. Ranks that wait for it end when the watchdog's time has passed.
  void Kill(int rank);
  bool killed(int rank) const { return ranks_[Index(rank)]->killed; }
  bool AnyKilled() const;
  void KillAll();
  // Delays the unwinding of a killed rank until `holds()`, because other fibers use its objects until then.
  void UnwindOnce(int rank, std::function<bool()> holds) {
    ranks_[Index(rank)]->may_unwind = std::move(holds);
  }
  bool ended(int rank) const { return ranks_[Index(rank)]->ended; }
  // Returns the rank whose turn it is, for calls from its own code. Events happen in any rank's turn.
  int running() const { return running_; }

  // Records the first failure, which ends the simulation.
  void Fail(const std::string& what);
  const std::optional<std::string>& failure() const { return failure_; }

  // Adds a line to the trace and to its hash. `line` is only called if the trace is printed.
  void Trace(std::uint64_t kind, std::uint64_t detail, const std::function<std::string()>& line);
  std::uint64_t hash() const { return hash_; }
  void PrintTrace(bool print) { print_ = print; }

 private:
  struct Rank {
    std::unique_ptr<Fiber> fiber;
    std::uint64_t spent_ns = 0;  // processor time
    bool ended = false;
    bool killed = false;
    bool unwinding = false;  // RankEnded was thrown or is due
    Time frozen_until = 0;
    std::uint64_t weight = 1;  // relative chance of being drawn
    std::string where = "start";
    std::function<bool()> ready;       // empty: the rank can go on
    std::function<bool()> may_unwind;  // empty: it may unwind at once
    Time deadline = kNever;
    Time since = 0;  // when the wait began
    std::uint64_t since_event = 0;
  };
  static std::size_t Index(int rank) { return static_cast<std::size_t>(rank); }

  // Switches to the drawn rank, until another rank switches back.
  void PassOn(Rank& mine);
  // Draws the next rank, and lets the world's events happen. Returns null if all ranks have ended.
  Rank* Draw();
  bool CanGoOn(Rank& rank);
  // Ends the rank's turn and adds its processor time.
  void EndTurn(Rank& rank);
  void AdvanceTime();
  void LookForStuck();
  std::string Waiting() const;

  const SchedulerLimits limits_;
  World& world_;
  Random random_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  Fiber main_;
  int running_ = 0;
  std::uint64_t switched_at_ns_ = 0;
  Time now_ = 0;
  std::uint64_t events_ = 0;
  std::uint64_t hash_ = 0xcbf29ce484222325;
  bool print_ = false;
  std::optional<std::string> failure_;
};

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_SCHEDULER_H_
