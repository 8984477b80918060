// Begins the threads that run launches before the first launch needs them. Thread-safety: a free function.
#ifndef SLOTWISE_KERNELS_BACKEND_CPU_BEGIN_THREADS_H_
#define SLOTWISE_KERNELS_BACKEND_CPU_BEGIN_THREADS_H_

namespace slotwise {

// Returns when oneTBB has begun as many threads as a launch on `count` threads needs, or after a second. By
// itself, oneTBB begins a thread when a launch first has work for it, keeps it, and throws if the system
// gives no more: so a server has its threads from its start on.
void BeginCpuThreads(int count);

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_BACKEND_CPU_BEGIN_THREADS_H_
