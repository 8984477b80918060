#include "server/launch/leftovers.h"

#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <fstream>
#include <iterator>
#include <memory>
#include <system_error>
#include <thread>

namespace slotwise::launch {
namespace {

constexpr std::chrono::milliseconds kBetween{10};

// Returns whether the process was started with this variable. A process that has ended has no environment.
bool Carries(pid_t process, const std::string& variable) {
  std::ifstream file("/proc/" + std::to_string(process) + "/environ", std::ios::binary);
  const std::string environment{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  for (std::size_t at = 0; at < environment.size();) {
    const std::size_t end = std::min(environment.find('\0', at), environment.size());
    if (std::string_view(environment).substr(at, end - at) == variable) return true;
    at = end + 1;
  }
  return false;
}

}  // namespace

std::vector<pid_t> FindLeftovers(std::string_view id) {
  const std::string variable = std::string(kIdVariable) + "=" + std::string(id);
  const auto close_folder = [](DIR* folder) { closedir(folder); };
  const std::unique_ptr<DIR, decltype(close_folder)> folder(opendir("/proc"), close_folder);
  if (folder == nullptr) throw std::system_error(errno, std::generic_category(), "cannot read /proc");
  std::vector<pid_t> found;
  while (const dirent* entry = readdir(folder.get())) {
    const std::string_view name = entry->d_name;
    pid_t process = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), process);
    if (error != std::errc() || end != name.data() + name.size() || process == getpid()) continue;
    if (Carries(process, variable)) found.push_back(process);
  }
  return found;
}

Swept KillLeftovers(std::string_view id, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  Swept swept;
  for (;;) {
    swept.left = FindLeftovers(id);
    if (swept.left.empty() || std::chrono::steady_clock::now() > deadline) return swept;
    for (const pid_t process : swept.left) {
      // A number is given to another process only after all others were: not in the moment since it was seen.
      if (kill(process, SIGKILL) == 0 && !std::ranges::count(swept.killed, process))
        swept.killed.push_back(process);
    }
    std::this_thread::sleep_for(kBetween);
  }
}

std::string ListOf(const std::vector<pid_t>& processes) {
  std::string list;
  for (std::size_t i = 0; i < processes.size(); ++i) {
    if (i > 0) list += i + 1 == processes.size() ? " and " : ", ";
    list += std::to_string(processes[i]);
  }
  return list;
}

}  // namespace slotwise::launch
