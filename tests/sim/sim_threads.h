// SimThreads: the threads beside a rank's engine, as fibers that take turns with all others. SteppedFiles: a
// rank's files, each operation of which is a turn.
//
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
  // made true what the engine's fiber, `engine`, waits for.
  SimThreads(Scheduler& scheduler, int engine, const std::vector<int>& helpers, std::function<void()> poke);
  ~SimThreads() override;

  std::unique_ptr<Thread> Begin(std::function<void()> body) override;
  void Wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
            const std::function<bool()>& holds) override;
  std::optional<std::chrono::milliseconds> WaitFor(std::condition_variable& changed,
                                                   std::unique_lock<std::mutex>& lock,
                                                   const std::function<bool()>& holds,
                                                   std::chrono::milliseconds longest) override;

  // Runs the bodies that Begin gives this fiber, until the engine's has ended.
  void RunHelper(int fiber);
  // A thread's turn ends.
  void Step(int fiber, const char* where);

 private:
  class Joined;
  struct Helper {
    int fiber = 0;
    std::function<void()> body;  // empty: it has nothing to do
  };

  bool IsHelper(int fiber) const { return fiber != engine_; }
  Time Deadline(int fiber) const;
  // Returns whether `holds()` became true before that time.
  bool WaitUntil(std::unique_lock<std::mutex>& lock, const std::function<bool()>& holds, Time end);

  Scheduler& scheduler_;
  const int engine_;
  const std::function<void()> poke_;
  std::vector<std::unique_ptr<Helper>> helpers_;
};

// `files` as a rank sees them, whose threads are `threads`: others have their turns before each operation
// that changes or syncs something, and a rank that was killed does nothing any more. Both outlive it.
std::unique_ptr<FileSystem> MakeSteppedFiles(FileSystem& files, Scheduler& scheduler, SimThreads& threads);

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_SIM_THREADS_H_
