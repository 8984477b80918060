#include "kernels/backend/host_memory.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <limits>
#include <optional>
#include <string_view>

namespace slotwise {
namespace {

constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

// Returns the number that a file consists of. None for a word ("max") or no such file.
std::optional<std::size_t> NumberIn(const std::string& path) {
  std::ifstream file(path);
  std::size_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

// Returns the number behind a word that begins a line, as in "MemAvailable: 123 kB" and "inactive_file 123".
std::optional<std::size_t> NumberBehind(const std::string& path, std::string_view word) {
  std::ifstream file(path);
  std::string found;
  std::size_t number = 0;
  while (file >> found) {
    if (found == word && file >> number) return number;
    file.clear();
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::nullopt;
}

// The names that a version of control groups gives to its files.
struct GroupFiles {
  const char* limit;
  const char* used;
  std::array<const char*, 2> files;  // words of memory.stat
};
constexpr GroupFiles kVersion1{
    "/memory.limit_in_bytes", "/memory.usage_in_bytes", {"total_inactive_file", "total_active_file"}};
constexpr GroupFiles kVersion2{"/memory.max", "/memory.current", {"inactive_file", "active_file"}};

void ApplyLimit(const std::string& group, const GroupFiles& files, HostMemoryBytes& memory) {
  const auto limit = NumberIn(group + files.limit);
  const auto used = NumberIn(group + files.used);
  if (!limit || !used) return;
  // The kernel gives up pages of files before it refuses memory, those that were read twice, too: a recovery
  // reads a journal twice.
  std::size_t of_files = 0;
  for (const char* word : files.files) of_files += NumberBehind(group + "/memory.stat", word).value_or(0);
  const std::size_t taken = *used - std::min(*used, of_files);
  memory.total = std::min(memory.total, *limit);
  memory.available = std::min(memory.available, *limit - std::min(*limit, taken));
}

// Applies the limits of a group and of those that it lies in. The files of a container may be those of its
// own group, whose path from outside means nothing inside.
void ApplyLimits(const std::string& mounted, std::string path, const GroupFiles& files,
                 HostMemoryBytes& memory) {
  for (;;) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    ApplyLimit(mounted + path, files, memory);
    if (path.empty()) return;
    path.erase(path.rfind('/'));
  }
}

}  // namespace

HostMemoryBytes ReadHostMemory(const std::string& root) {
  HostMemoryBytes memory{kNoLimit, kNoLimit};
  const std::string meminfo = root + "/proc/meminfo";
  if (const auto kib = NumberBehind(meminfo, "MemTotal:")) memory.total = *kib << 10;
  if (const auto kib = NumberBehind(meminfo, "MemAvailable:")) memory.available = *kib << 10;

  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // number:controllers:path
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") ApplyLimits(root + "/sys/fs/cgroup", path, kVersion2, memory);
    if (controllers.find(",memory,") != std::string::npos) {
      ApplyLimits(root + "/sys/fs/cgroup/memory", path, kVersion1, memory);
    }
  }
  memory.available = std::min(memory.available, memory.total);
  return memory;
}

std::size_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t all = 0;
  std::size_t resident = 0;
  std::size_t shared = 0;
  if (!(statm >> all >> resident >> shared)) return 0;
  return (resident - std::min(resident, shared)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace slotwise
