#include "kernels/backend/cpu_begin_threads.h"

#ifndef __SANITIZE_THREAD__
#include <tbb/info.h>
#include <tbb/parallel_for.h>
#include <tbb/partitioner.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#endif

namespace slotwise {

#ifdef __SANITIZE_THREAD__
void BeginCpuThreads(int /*count*/) {}  // each launch begins its own threads
#else
void BeginCpuThreads(int count) {
  static std::atomic<int> begun = 1;
  const int wanted = std::min(count, tbb::info::default_concurrency());
  int before = begun;
  while (before < wanted && !begun.compare_exchange_weak(before, wanted)) continue;
  if (before >= wanted) return;
  std::atomic<int> there = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  tbb::task_arena arena(wanted);
  arena.execute([&] {
    // Each task waits for the others, so each has a thread of its own.
    const auto come = [&](int) {
      ++there;
      while (there < wanted && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    };
    tbb::parallel_for(0, wanted, come, tbb::simple_partitioner());
  });
}
#endif

}  // namespace slotwise
