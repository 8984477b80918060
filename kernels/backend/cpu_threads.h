// Launches run on the threads of oneTBB.
//
// In builds with ThreadSanitizer they are plain threads, made for each launch: oneTBB's library is not
// instrumented, so the sanitizer would not see how its threads wait for each other, and call every launch a
// race with the one before. Thread-safety: one launch at a time.
#ifndef SLOTWISE_KERNELS_BACKEND_CPU_THREADS_H_
#define SLOTWISE_KERNELS_BACKEND_CPU_THREADS_H_

#ifdef __SANITIZE_THREAD__
#include <thread>
#include <vector>
#else
#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#endif

namespace slotwise {

class CpuThreads {
 public:
#ifdef __SANITIZE_THREAD__
  // REQUIRES: count >= 1.
  explicit CpuThreads(int count) : count_(count) {}
  int count() const { return count_; }

  // Calls f(begin, end) for ranges that together are [0, n), of about `grain` or more each; returns when all
  // are done.
  template <class Index, class F>
  void ForRanges(Index n, Index grain, F f) {
    const Index most = n / grain + 1;
    const Index ranges = most < static_cast<Index>(count_) ? most : static_cast<Index>(count_);
    std::vector<std::thread> threads;
    for (Index r = 0; r < ranges; ++r) {
      threads.emplace_back([=] { f(n / ranges * r, r + 1 == ranges ? n : n / ranges * (r + 1)); });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  int count_;
#else
  // REQUIRES: count >= 1.
  explicit CpuThreads(int count) : arena_(count) {}
  int count() const { return arena_.max_concurrency(); }

  // Calls f(begin, end) for ranges that together are [0, n), of about `grain` or more each; returns when all
  // are done.
  template <class Index, class F>
  void ForRanges(Index n, Index grain, F f) {
    arena_.execute([&] {
      tbb::parallel_for(tbb::blocked_range<Index>(0, n, grain),
                        [&](const tbb::blocked_range<Index>& range) { f(range.begin(), range.end()); });
    });
  }

 private:
  tbb::task_arena arena_;
#endif
};

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_BACKEND_CPU_THREADS_H_
