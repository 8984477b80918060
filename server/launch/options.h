// Parses the command line of slotwise-launch.
// Thread-safety: a free function, for main's thread.
#ifndef SLOTWISE_SERVER_LAUNCH_OPTIONS_H_
#define SLOTWISE_SERVER_LAUNCH_OPTIONS_H_

#include <chrono>
#include <string>
#include <variant>
#include <vector>

#include "server/launch/restarts.h"

namespace slotwise::launch {

struct Options {
  std::string data;      // the data folder, as given
  int ranks = 0;         // 0: mpirun decides by the hostfile, or one rank
  std::string hostfile;  // empty: only this machine
  std::vector<std::string> mpirun_arguments;
  RestartLimits restarts;
  std::chrono::milliseconds start_limit{0};  // a server that does not serve by then is killed
  // mpirun is killed if it runs this long after its last rank, or after a stop without a rank.
  std::chrono::milliseconds patience{10'000};
  std::chrono::milliseconds rank_limit{120'000};  // and if it has started no rank by then
  std::vector<std::string> server;                // the server's program and its arguments
  std::string sweep;  // an id: only kills the processes with this id on this machine

  // Returns whether mpirun is needed.
  bool WithMpi() const { return ranks > 1 || !hostfile.empty() || !mpirun_arguments.empty(); }
};

// Returns the options; or an exit code after --help, --version or an error, for which it prints the answer.
std::variant<Options, int> ParseOptions(int argc, char** argv);

}  // namespace slotwise::launch

#endif  // SLOTWISE_SERVER_LAUNCH_OPTIONS_H_
