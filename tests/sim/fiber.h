// Fiber: a stack for code that runs until it switches to another fiber of the same thread.
//
// Ranks take turns thousands of times a seed. A switch of fibers takes a fraction of a microsecond, however
// busy the machine is; threads that wake each other would wait for the system's scheduler each time. The
// sanitizers are told of every switch. A switch never happens while an exception is thrown or caught, because
// exceptions belong to the thread.
// Thread-safety: the fibers of a thread belong to it.
#ifndef SLOTWISE_TESTS_SIM_FIBER_H_
#define SLOTWISE_TESTS_SIM_FIBER_H_

#include <ucontext.h>

#include <cstddef>
#include <functional>

namespace slotwise::sim {

class Fiber {
 public:
  // The thread's current stack.
  Fiber();
  // Runs `body` at the first switch to this fiber. `body` ends with LeaveTo.
  explicit Fiber(std::function<void()> body);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Both REQUIRE that this fiber runs. SwitchTo returns when another fiber switches back. After LeaveTo, none
  // does.
  void SwitchTo(Fiber& next) { Switch(next, false); }
  void LeaveTo(Fiber& next) { Switch(next, true); }

 private:
  static void Enter();
  void Switch(Fiber& next, bool leaves);
  void Arrive();

  std::function<void()> body_;
  ucontext_t context_{};
  void* stack_ = nullptr;  // null: the thread's own stack
  const void* bottom_ = nullptr;
  std::size_t size_ = 0;
  [[maybe_unused]] void* fake_stack_ = nullptr;  // of AddressSanitizer
  [[maybe_unused]] void* fiber_ = nullptr;       // of ThreadSanitizer
};

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_FIBER_H_
