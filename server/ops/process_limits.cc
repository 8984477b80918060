#include "server/ops/process_limits.h"

#include <pthread.h>

#include <algorithm>
#include <latch>
#include <string>
#include <thread>
#include <vector>

namespace slotwise {
namespace {

void* Await(void* latch) {
  static_cast<std::latch*>(latch)->wait();
  return nullptr;
}

// Returns how many threads this process can start, up to `most`.
rlim_t ThreadsToHave(rlim_t most) {
  constexpr std::size_t kStack = 64 << 10;
  std::latch all_begun(1);
  std::vector<pthread_t> threads;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStack);
  pthread_t thread{};
  while (threads.size() < most && pthread_create(&thread, &attributes, Await, &all_begun) == 0) {
    threads.push_back(thread);
  }
  all_begun.count_down();
  for (const pthread_t begun : threads) pthread_join(begun, nullptr);
  pthread_attr_destroy(&attributes);
  return threads.size();
}

}  // namespace

ProcessLimits ProcessLimits::Mine() {
  ProcessLimits mine;
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0) mine.address_bytes = limit.rlim_cur;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) mine.files = limit.rlim_max;
  mine.needs_threads +=
      kThreadsOfProcessor * std::min<rlim_t>(std::thread::hardware_concurrency(), kMostProcessors);
  mine.threads = ThreadsToHave(mine.needs_threads);
  return mine;
}

Status ProcessLimits::Check() const {
  if (address_bytes < kLeastAddressesMib << 20) {
    return FailedPrecondition("this process may have " + std::to_string(address_bytes >> 10) +
                              " KiB of address space (RLIMIT_AS, ulimit -v), and a server needs at least " +
                              std::to_string(kLeastAddressesMib << 10));
  }
  if (files < kLeastFiles) {
    return FailedPrecondition("this process may open " + std::to_string(files) +
                              " files (RLIMIT_NOFILE, ulimit -n), and a server needs at least " +
                              std::to_string(kLeastFiles));
  }
  if (threads < needs_threads) {
    return FailedPrecondition("the system gives this process no more than " + std::to_string(threads) +
                              " threads (RLIMIT_NPROC, ulimit -u, or a container's limit of pids), and a "
                              "server needs at least " +
                              std::to_string(needs_threads));
  }
  return {};
}

}  // namespace slotwise
