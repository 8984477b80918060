// Finds and kills processes of an earlier run on this machine by the id in their environment.
//
// Thread-safety: free functions.
#ifndef SLOTWISE_SERVER_LAUNCH_LEFTOVERS_H_
#define SLOTWISE_SERVER_LAUNCH_LEFTOVERS_H_

#include <sys/types.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace slotwise::launch {

// The variable in the environment of mpirun and its ranks; its value is DataLock::id.
inline constexpr std::string_view kIdVariable = "SLOTWISE_LAUNCH_ID";

// Also in the environment of ranks, but not of mpirun.
inline constexpr std::string_view kRankVariable = "SLOTWISE_LAUNCH_RANK=1";

// Returns the processes, other than this one, that were started with this id in their environment and have a
// thread that has not begun to end. Only root sees other users' processes.
std::vector<pid_t> FindLeftovers(std::string_view id);

// Returns those that mpirun has started as ranks.
std::vector<pid_t> FindRanks(std::string_view id);
// Returns whether a process is such a rank. A process stops being one when it begins to end.
bool IsRank(pid_t process, std::string_view id);

struct Swept {
  std::vector<pid_t> killed;
  std::vector<pid_t> left;  // not ended within the limit, for example because a disk does not answer
};

// Kills these processes with SIGKILL. Waits until they and their new children have ended, and so hold no lock
// and no port. (A zombie, which was not waited for, holds none.)
Swept KillLeftovers(std::string_view id, std::chrono::milliseconds limit);

// Returns "12, 13 and 14".
std::string ListOf(const std::vector<pid_t>& processes);

}  // namespace slotwise::launch

#endif  // SLOTWISE_SERVER_LAUNCH_LEFTOVERS_H_
