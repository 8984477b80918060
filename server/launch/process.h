// Process: a program that this one started, with a pipe to its standard input and one from its standard
// output.
//
// It is the leader of a session of its own, where a terminal's Ctrl-C does not reach it. Its standard input
// ends when this process ends, however that comes about.
// Thread-safety: one thread.
#ifndef SLOTWISE_SERVER_LAUNCH_PROCESS_H_
#define SLOTWISE_SERVER_LAUNCH_PROCESS_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "slotwise/status.h"

namespace slotwise::launch {

class Process {
 public:
  // Starts command[0], looked for on PATH, with this process's environment and `variables` ("NAME=VALUE").
  // UNAVAILABLE, with the reason, if it cannot be started. REQUIRES: a command.
  static Result<Process> Start(const std::vector<std::string>& command,
                               const std::vector<std::string>& variables);

  // Kills the program if it runs, and waits for it.
  ~Process();
  Process(Process&& other) noexcept;
  Process& operator=(Process&&) = delete;

  // A file descriptor that becomes readable when there is output.
  int output() const { return output_; }
  // Returns the output that has come, without waiting; nothing at its end.
  std::optional<std::string> ReadOutput();
  // Ends the program's standard input. Ending it again does nothing.
  void EndInput();
  void Kill();
  // Lets it go on if it is stopped.
  void Continue();
  // Returns the exit code, 128 + the signal if it was killed, or nothing while it runs. Takes leave also of
  // other children that have ended: the first process of a container inherits them.
  std::optional<int> ExitCode();
  // Returns whether it was stopped, as by SIGSTOP, when ExitCode was last asked.
  bool stopped() const { return stopped_; }
  pid_t id() const { return id_; }

 private:
  Process(pid_t id, int input, int output) : id_(id), input_(input), output_(output) {}

  pid_t id_;
  int input_;
  int output_;
  std::optional<int> exit_code_;
  bool stopped_ = false;
};

// Returns why a program cannot be started, in words for an operator; `error` is errno's value.
std::string StartError(const std::string& program, int error);

}  // namespace slotwise::launch

#endif  // SLOTWISE_SERVER_LAUNCH_PROCESS_H_
