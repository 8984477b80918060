// Scheduler: runs the ranks one at a time, in an order drawn from a seed, in a time that it moves itself.
//
// Each rank has a fiber, all on one thread. A rank gives up its turn where it calls Yield or Await; then the
// scheduler draws what happens next: an event of the world (a client's request, say), or another rank that
// goes on. Everything follows from the seed, so a seed that failed fails again.
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

// Virtual time, in microseconds from the simulation's begin.
using Time = std::uint64_t;
inline constexpr Time kNever = std::numeric_limits<Time>::max();

// Adds these counts of `other` to those of `sum`.
template <class Counts>
void AddCounts(Counts& sum, const Counts& other, std::initializer_list<std::uint64_t Counts::*> counts) {
  for (const auto count : counts) sum.*count += other.*count;
}

// A rank unwinds by this when the rank is killed, or the simulation is over.
struct RankEnded {};

// What may happen beside the ranks' own work.
class World {
 public:
  virtual ~World() = default;
  // Lets something happen, if it is its time: a client acts, a device makes progress, a rank is killed.
  virtual void Happen() = 0;
  // Nothing can go on at this time. Lets a client act, and returns true, if one is ready to.
  virtual bool HappenWhileIdle() = 0;
  // How far time may jump while all ranks only wait for it. At least 1.
  virtual Time DrawJump() = 0;

 protected:
  World() = default;
};

struct SchedulerLimits {
  std::uint64_t events = 200'000;  // more than any seed needs
  Time stuck = 30'000'000;         // a rank that has waited for others this long waits for ever
  Time watchdog = 3'000'000;       // the same, if another rank is dead
};

class Scheduler {
 public:
  Scheduler(std::uint64_t seed, int ranks, World& world, const SchedulerLimits& limits = {});
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Runs `body(rank)` for each rank until all have returned.
  void Run(const std::function<void(int)>& body);

  // A rank lets others go. Throws RankEnded.
  void Yield(int rank, const char* where);
  // A rank waits until `ready()` holds or it is `deadline`. Throws RankEnded.
  void Await(int rank, std::string where, std::function<bool()> ready, Time deadline = kNever);
  // The same for those who cannot throw: false where Await throws.
  bool AwaitQuietly(int rank, std::string where, std::function<bool()> ready) noexcept;

  Time now() const { return now_; }
  std::uint64_t events() const { return events_; }
  // Of the processor, by the rank and by the events that happened in its turns.
  std::uint64_t SpentNanoseconds(int rank) const;
  int ranks() const { return static_cast<int>(ranks_.size()); }
  Random& random() { return random_; }

  // The rank takes no part until then.
  void Freeze(int rank, Time until) { ranks_[Index(rank)]->frozen_until = until; }
  // The rank unwinds at its next step. Others that wait for it follow once they have waited for long.
  void Kill(int rank);
  bool killed(int rank) const { return ranks_[Index(rank)]->killed; }
  bool AnyKilled() const;
  void KillAll();
  // A rank that is killed unwinds once this holds: what it shares with other fibers is theirs until then.
  void UnwindOnce(int rank, std::function<bool()> holds) {
    ranks_[Index(rank)]->may_unwind = std::move(holds);
  }
  bool ended(int rank) const { return ranks_[Index(rank)]->ended; }
  // Whose turn it is. Meant for its own calls; the world's events happen in anybody's turn.
  int running() const { return running_; }

  // What is wrong, the first time; it ends the simulation.
  void Fail(const std::string& what);
  const std::optional<std::string>& failure() const { return failure_; }

  // Adds a line to the trace, of which Hash is the hash. `line` is only made if somebody reads it.
  void Trace(std::uint64_t kind, std::uint64_t detail, const std::function<std::string()>& line);
  std::uint64_t hash() const { return hash_; }
  void PrintTrace(bool print) { print_ = print; }

 private:
  struct Rank {
    std::unique_ptr<Fiber> fiber;
    std::uint64_t spent_ns = 0;  // of the processor
    bool ended = false;
    bool killed = false;
    bool unwinding = false;  // it was told that it is over
    Time frozen_until = 0;
    std::uint64_t weight = 1;  // how often it is drawn
    std::string where = "start";
    std::function<bool()> ready;       // empty: it can go on
    std::function<bool()> may_unwind;  // empty: at once
    Time deadline = kNever;
    Time since = 0;  // when it began to wait
    std::uint64_t since_event = 0;
  };
  static std::size_t Index(int rank) { return static_cast<std::size_t>(rank); }

  // Switches to the rank that is drawn, until another rank switches back.
  void PassOn(Rank& mine);
  // Draws who goes on, letting the world's events happen; null if all ranks have ended.
  Rank* Draw();
  bool CanGoOn(Rank& rank);
  // The rank's turn ends: counts what it took.
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
