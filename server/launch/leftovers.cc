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
#include <stdexcept>
#include <system_error>
#include <thread>

namespace slotwise::launch {
namespace {

constexpr std::chrono::milliseconds kBetween{10};

using Folder = std::unique_ptr<DIR, decltype([](DIR* folder) { closedir(folder); })>;

std::string FolderOf(pid_t process) { return "/proc/" + std::to_string(process); }

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Returns the entries of a folder that are numbers: the processes in /proc, the threads in /proc/N/task.
// Returns none if there is no such folder.
std::vector<pid_t> NumbersIn(const std::string& path) {
  std::vector<pid_t> numbers;
  const Folder folder(opendir(path.c_str()));
  while (const dirent* entry = folder != nullptr ? readdir(folder.get()) : nullptr) {
    const std::string_view name = entry->d_name;
    pid_t number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (error == std::errc() && end == name.data() + name.size()) numbers.push_back(number);
  }
  return numbers;
}

std::vector<std::string> ThreadsOf(pid_t process) {
  std::vector<std::string> threads;
  const std::string folder = FolderOf(process) + "/task";
  for (const pid_t thread : NumbersIn(folder)) threads.push_back(folder + "/" + std::to_string(thread));
  return threads;
}

bool Has(const std::string& environment, const std::string& variable) {
  for (std::size_t at = 0; at < environment.size();) {
    const std::size_t end = std::min(environment.find('\0', at), environment.size());
    if (std::string_view(environment).substr(at, end - at) == variable) return true;
    at = end + 1;
  }
  return false;
}

// Returns whether the process was started with this variable. An ended thread has no environment; the first
// thread may have ended while others go on.
bool Carries(pid_t process, const std::string& variable) {
  const std::string first = ReadAll(FolderOf(process) + "/environ");
  if (!first.empty()) return Has(first, variable);
  return std::ranges::any_of(ThreadsOf(process), [&](const std::string& thread) {
    return Has(ReadAll(thread + "/environ"), variable);
  });
}

// Returns whether all threads have ended and so have released locks and ports: each is a zombie or dead
// (proc(5), `stat`: the state follows the program's name, which is in parentheses and may contain some).
bool HasEnded(pid_t process) {
  return std::ranges::all_of(ThreadsOf(process), [](const std::string& thread) {
    const std::string stat = ReadAll(thread + "/stat");
    const std::size_t name_end = stat.rfind(") ");
    return name_end == std::string::npos || stat[name_end + 2] == 'Z' || stat[name_end + 2] == 'X';
  });
}

std::string IdVariableOf(std::string_view id) { return std::string(kIdVariable) + "=" + std::string(id); }

}  // namespace

std::vector<pid_t> FindLeftovers(std::string_view id) {
  const std::string variable = IdVariableOf(id);
  std::vector<pid_t> found = NumbersIn("/proc");
  if (found.empty()) throw std::runtime_error("cannot read /proc");
  std::erase_if(found, [&](pid_t process) { return process == getpid() || !Carries(process, variable); });
  return found;
}

std::vector<pid_t> FindRanks(std::string_view id) {
  std::vector<pid_t> found = FindLeftovers(id);
  std::erase_if(found, [&](pid_t process) { return !IsRank(process, id); });
  return found;
}

bool IsRank(pid_t process, std::string_view id) {
  return Carries(process, IdVariableOf(id)) && Carries(process, std::string(kRankVariable));
}

Swept KillLeftovers(std::string_view id, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  Swept swept;
  for (;;) {
    swept.left = FindLeftovers(id);
    for (const pid_t process : swept.left) {
      // The system reuses a number only after all others, so not within this moment.
      if (kill(process, SIGKILL) == 0 && !std::ranges::count(swept.killed, process))
        swept.killed.push_back(process);
    }
    // A killed process loses its environment when it begins to release its memory. That may take seconds, and
    // only afterwards does it release its locks and ports.
    for (const pid_t process : swept.killed) {
      if (!HasEnded(process) && !std::ranges::count(swept.left, process)) swept.left.push_back(process);
    }
    if (swept.left.empty() || std::chrono::steady_clock::now() > deadline) return swept;
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
