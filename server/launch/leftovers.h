// Finds and kills processes of an earlier run on this machine, by the id in their environment.
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

// The variable that mpirun and its ranks carry; its value is a DataLock's id.
inline constexpr std::string_view kIdVariable = "SLOTWISE_LAUNCH_ID";

// What ranks carry besides, and mpirun does not.
inline constexpr std::string_view kRankVariable = "SLOTWISE_LAUNCH_RANK=1";

// Returns the processes, other than this one, that were started with this id in their environment and of
// which a thread has not begun to end. Processes of other users cannot be seen, unless by root.
std::vector<pid_t> FindLeftovers(std::string_view id);

// Returns those of them that mpirun has started as ranks.
std::vector<pid_t> FindRanks(std::string_view id);
// Returns whether a process is one of those. It is none from the moment on in which it begins to end.
bool IsRank(pid_t process, std::string_view id);

struct Swept {
  std::vector<pid_t> killed;
  std::vector<pid_t> left;  // what has not ended within the limit, for example because a disk does not answer
};

// Kills them with SIGKILL and waits until they, and what they started meanwhile, have ended and so hold no
// lock and no port any more. (One that was not waited for, a zombie, holds none.)
Swept KillLeftovers(std::string_view id, std::chrono::milliseconds limit);

// Returns "12, 13 and 14".
std::string ListOf(const std::vector<pid_t>& processes);

}  // namespace slotwise::launch

#endif  // SLOTWISE_SERVER_LAUNCH_LEFTOVERS_H_
