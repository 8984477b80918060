#include "tests/sim/fiber.h"

#include <sys/mman.h>

#include <new>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#elif defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace slotwise::sim {
namespace {

constexpr std::size_t kStackBytes = std::size_t{1} << 20;  // of address space; what is touched becomes memory
constexpr std::size_t kGuardBytes = 4096;

thread_local Fiber* arriving = nullptr;                  // the fiber that is switched to
[[maybe_unused]] thread_local Fiber* leaving = nullptr;  // the fiber that switches; sanitizers are told of it

// What the thread sanitizer calls the stack that the thread began on.
void* ThreadsOwn() {
#if defined(__SANITIZE_THREAD__)
  return __tsan_get_current_fiber();
#else
  return nullptr;
#endif
}

}  // namespace

Fiber::Fiber() : fiber_(ThreadsOwn()) {}

Fiber::Fiber(std::function<void()> body) : body_(std::move(body)) {
  void* const memory =
      mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  stack_ = memory;
  mprotect(stack_, kGuardBytes, PROT_NONE);  // stacks grow down
  bottom_ = static_cast<std::byte*>(stack_) + kGuardBytes;
  size_ = kStackBytes - kGuardBytes;
  getcontext(&context_);
  context_.uc_stack.ss_sp = static_cast<std::byte*>(stack_) + kGuardBytes;
  context_.uc_stack.ss_size = size_;
  makecontext(&context_, &Fiber::Enter, 0);
#if defined(__SANITIZE_THREAD__)
  fiber_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
  if (stack_ == nullptr) return;
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(fiber_);
#endif
  munmap(stack_, kStackBytes);
}

void Fiber::Enter() {
  Fiber& self = *arriving;
  self.Arrive();
  self.body_();
}

void Fiber::Switch(Fiber& next, bool leaves) {
  arriving = &next;
  leaving = this;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(leaves ? nullptr : &fake_stack_, next.bottom_, next.size_);
#elif defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(next.fiber_, 0);
#endif
  static_cast<void>(leaves);
  swapcontext(&context_, &next.context_);
  Arrive();
}

// The address sanitizer tells here where the stack lies that was left: of the thread's own that was unknown.
void Fiber::Arrive() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack_, &leaving->bottom_, &leaving->size_);
#endif
}

}  // namespace slotwise::sim
