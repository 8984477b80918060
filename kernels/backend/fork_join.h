// Tells ThreadSanitizer what oneTBB does: oneTBB's library is not instrumented, so without this every launch would look
// like a race with the one before it. Nothing in builds without that sanitizer.
#ifndef SLOTWISE_KERNELS_BACKEND_FORK_JOIN_H_
#define SLOTWISE_KERNELS_BACKEND_FORK_JOIN_H_

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace slotwise {

// What the forking thread did before Fork is seen after Begin; what tasks did before End is seen after Join.
class ForkJoin {
 public:
#ifdef __SANITIZE_THREAD__
  void Fork() { __tsan_release(&fork_); }
  void Begin() { __tsan_acquire(&fork_); }
  void End() { __tsan_release(&join_); }
  void Join() { __tsan_acquire(&join_); }

 private:
  char fork_ = 0;
  char join_ = 0;
#else
  void Fork() {}
  void Begin() {}
  void End() {}
  void Join() {}
#endif
};

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_BACKEND_FORK_JOIN_H_
