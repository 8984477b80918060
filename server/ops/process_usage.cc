#include "server/ops/process_usage.h"

#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

namespace slotwise {
namespace {

double SecondsOf(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

std::uint64_t CountOpenFiles() {
  std::error_code error;
  const std::filesystem::directory_iterator files("/proc/self/fd", error);
  if (error) return 0;
  std::uint64_t count = 0;
  for (auto file = begin(files); file != end(files) && !error; file.increment(error)) ++count;
  return count > 0 ? count - 1 : 0;  // the folder itself is open
}

}  // namespace

ProcessUsage ReadProcessUsage() {
  ProcessUsage usage;
  rusage used{};
  if (getrusage(RUSAGE_SELF, &used) == 0) {
    usage.cpu_seconds = SecondsOf(used.ru_utime) + SecondsOf(used.ru_stime);
  }
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  std::uint64_t mapped = 0;
  std::uint64_t resident = 0;
  if (std::ifstream("/proc/self/statm") >> mapped >> resident) {
    usage.virtual_bytes = mapped * page;
    usage.resident_bytes = resident * page;
  }
  const auto heap = mallinfo2();  // of all threads' arenas
  usage.heap_used_bytes = heap.uordblks + heap.hblkhd;
  usage.heap_free_bytes = heap.fordblks;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) usage.max_files = limit.rlim_cur;
  usage.open_files = CountOpenFiles();
  return usage;
}

}  // namespace slotwise
