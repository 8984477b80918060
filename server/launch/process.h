// Process is a program that this one started, with pipes to its standard input and from its standard output.
//
// The program leads its own session, so a terminal's Ctrl-C does not reach it. Its standard input ends when
// this process ends, in whatever way.
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
  // Starts command[0], found on PATH, with this process's environment and `variables` ("NAME=VALUE").
  // UNAVAILABLE, with the reason, if that fails. REQUIRES: `command` is not empty.
  static Result<Process> Start(const std::vector<std::string>& command,
                               const std::vector<std::string>& variables);

  // Kills the program if it runs, and waits for its end.
  ~Process();
  Process(Process&& other) noexcept;
  Process& operator=(Process&&) = delete;

  // Returns a file descriptor that becomes readable when there is output.
  int output() const { return output_; }
  // Returns the output that has come, without waiting; nothing at the end of the output.
  std::optional<std::string> ReadOutput();
  // Ends the program's standard input. Ending it again does nothing.
  void EndInput();
  void Kill();
  // Continues the program if it is stopped.
  void Continue();
  // Returns the exit code, 128 + the signal if it was killed, or nothing while it runs. Also reaps other
  // children that have ended, because the first process of a container inherits them.
  std::optional<int> ExitCode();
  // Returns whether the program was stopped, as by SIGSTOP, at the last call of ExitCode.
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

// Returns why a program cannot be started, for the operator; `error` is errno's value.
std::string StartError(const std::string& program, int error);

}  // namespace slotwise::launch

#endif  // SLOTWISE_SERVER_LAUNCH_PROCESS_H_
