// StopRequest receives SIGTERM and SIGINT through a file descriptor, so one wait covers signals and output.
//
// SIGHUP, SIGUSR1 and SIGUSR2, which operators send from habit, are ignored and logged, as in the ranks.
// Signals within a second of the first one count as one, because `timeout` signals its child and then its
// group.
// Thread-safety: one thread, the program's only one.
#ifndef SLOTWISE_SERVER_LAUNCH_STOP_REQUEST_H_
#define SLOTWISE_SERVER_LAUNCH_STOP_REQUEST_H_

#include <chrono>
#include <optional>

namespace slotwise::launch {

class StopRequest {
 public:
  // Blocks these signals and SIGCHLD. Throws std::system_error if there are no file descriptors left.
  StopRequest();
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  // Waits until a signal comes (SIGCHLD too), until `file` can be read or has ended (ignored if negative), or
  // for at most `most`.
  void Wait(int file, std::chrono::milliseconds most);

  // Returns the first signal, and the first one that came more than a second later, if there were such.
  std::optional<int> first() const { return first_; }
  std::optional<int> second() const { return second_; }

 private:
  void Take();

  int signals_;
  std::optional<int> first_;
  std::optional<int> second_;
  std::chrono::steady_clock::time_point since_;
};

}  // namespace slotwise::launch

#endif  // SLOTWISE_SERVER_LAUNCH_STOP_REQUEST_H_
