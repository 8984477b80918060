// Launcher kills leftover ranks of an earlier run, starts new ones, and does so again when they end unasked.
//
// Thread-safety: one thread, the program's only one.
#ifndef SLOTWISE_SERVER_LAUNCH_LAUNCHER_H_
#define SLOTWISE_SERVER_LAUNCH_LAUNCHER_H_

#include <optional>
#include <string>
#include <vector>

#include "server/launch/data_lock.h"
#include "server/launch/options.h"
#include "server/launch/process.h"
#include "server/launch/rank_watch.h"
#include "server/launch/restarts.h"
#include "server/launch/stop_request.h"

namespace slotwise::launch {

class Launcher {
 public:
  // REQUIRES: the options are for running a server. They and `lock` outlive the launcher.
  Launcher(const Options& options, const DataLock& lock) : options_(options), lock_(lock) {}

  // Runs until a stop, or until it gives up. Returns this program's exit code.
  int Run();

 private:
  // Kills leftover ranks on this machine, or on every host of the hostfile. Returns whether all are gone.
  bool Sweep();
  bool SweepHosts();
  // Runs the server until it ends; or fails to start it.
  RunEnd RunServer();
  // Handles output and signals until the process has ended. Returns its exit code.
  int Attend(Process& server, RunEnd& end);
  // Passes signals on to the server.
  void SeeToStops(Process& server);
  // These two handle a server that does not end, or does not serve.
  void SeeToStuck(Process& server, const RunEnd& end);
  void SeeToRanks(Process& server, const RunEnd& end);
  void KillServer(Process& server);
  // Reads the output that has come. Returns false at its end.
  bool TakeOutput(Process& server, RunEnd& end);
  void TakeLines(RunEnd& end);
  void NoteServing(const std::string& addresses, RunEnd& end);
  // Waits before a restart. Returns false if the launcher gives up or is told to stop.
  bool WaitToRestart(const RunEnd& end, Clock::duration ran_for);

  std::vector<std::string> ServerCommand() const;

  const Options& options_;
  const DataLock& lock_;
  Restarts restarts_{options_.restarts};
  StopRequest stop_;
  // State of the present run.
  std::string line_;  // the unfinished line of the server's output
  Clock::time_point began_;
  std::optional<Clock::time_point> serving_since_;
  std::optional<RankWatch> ranks_;  // if mpirun starts the server
  bool told_ = false;               // the server was told to finish
  bool killed_ = false;
  bool never_had_ranks_ = false;  // it was killed because no rank ever started
  bool seen_stopped_ = false;

  std::optional<Clock::time_point> last_end_;
};

}  // namespace slotwise::launch

#endif  // SLOTWISE_SERVER_LAUNCH_LAUNCHER_H_
