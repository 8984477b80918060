// Fiber: a stack of its own on which code runs until it switches to another one, all on one thread.
//
// Ranks take turns thousands of times a seed. A switch of fibers takes a fraction of a microsecond, however
// busy the machine is; threads that wake each other wait for the system's scheduler each time. The sanitizers
// are told of every switch. No switch happens while an exception is thrown or caught: those are the thread's.
// Thread-safety: the fibers of a thread belong to it.
#ifndef SLOTWISE_TESTS_SIM_FIBER_H_
#define SLOTWISE_TESTS_SIM_FIBER_H_

#include <ucontext.h>

#include <cstddef>
#include <functional>

namespace slotwise::sim {

class Fiber {
 public:
  // What the thread runs on already.
  Fiber();
  // Runs `body` when somebody first switches to it. `body` ends by LeaveTo.
  explicit Fiber(std::function<void()> body);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // REQUIRES, of both: this fiber runs. SwitchTo returns when another fiber switches back; none does after
  // LeaveTo.
  void SwitchTo(Fiber& next) { Switch(next, false); }
  void LeaveTo(Fiber& next) { Switch(next, true); }

 private:
  static void Enter();
  void Switch(Fiber& next, bool leaves);
  void Arrive();

  std::function<void()> body_;
  ucontext_t context_{};
  void* stack_ = nullptr;  // null: the thread's own
  const void* bottom_ = nullptr;
  std::size_t size_ = 0;
  [[maybe_unused]] void* fake_stack_ = nullptr;  // of the address sanitizer
  [[maybe_unused]] void* fiber_ = nullptr;       // of the thread sanitizer
};

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_FIBER_H_
