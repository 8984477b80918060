// SimThreads: the threads beside a rank's engine, run as fibers that take turns with all others.
// MakeSteppedFiles: a rank's files, each operation of which is a turn.
// Thread-safety: the scheduler's thread.
#ifndef SLOTWISE_TESTS_SIM_SIM_THREADS_H_
#define SLOTWISE_TESTS_SIM_SIM_THREADS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/durability/file_system.h"
#include "server/durability/threads.h"
#include "tests/sim/scheduler.h"

namespace slotwise::sim {

class SimThreads final : public Threads {
 public:
  // Threads run on the fibers `helpers`, each of which calls RunHelper. Calls `poke` when a thread may have
  // made a condition true for which the engine's fiber, `engine`, waits.
  SimThreads(Scheduler& scheduler, int engine, const std::vector<int>& helpers, std::function<void()> poke);
  ~SimThreads() override;

  std::unique_ptr<Thread> Begin(std::function<void()> body) override;
  void Wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
            const std::function<bool()>& holds) override;
  std::optional<std::chrono::milliseconds> WaitFor(std::condition_variable& changed,
                                                   std::unique_lock<std::mutex>& lock,
                                                   const std::function<bool()>& holds,
                                                   std::chrono::milliseconds longest) override;

  // Runs the bodies that Begin assigns to this fiber, until the engine's fiber has ended.
  void RunHelper(int fiber);
  // Ends a thread's turn.
  void Step(int fiber, const char* where);

 private:
  class Joined;
  struct Helper {
    int fiber = 0;
    std::function<void()> body;  // empty: the helper is idle
  };

  bool IsHelper(int fiber) const { return fiber != engine_; }
  Time Deadline(int fiber) const;
  // Returns whether `holds()` became true before `end`.
  bool WaitUntil(std::unique_lock<std::mutex>& lock, const std::function<bool()>& holds, Time end);

  Scheduler& scheduler_;
  const int engine_;
  const std::function<void()> poke_;
  std::vector<std::unique_ptr<Helper>> helpers_;
};

// Returns `files` for a rank with the threads `threads`. Other fibers have turns before each operation that
// changes or syncs a file, and a killed rank does nothing more. REQUIRES: both outlive the result.
std::unique_ptr<FileSystem> MakeSteppedFiles(FileSystem& files, Scheduler& scheduler, SimThreads& threads);

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_SIM_THREADS_H_
