// SIGTERM and SIGINT as a function call: the first asks the server to finish, another one ends the process at once.
//
// One stop often comes as several signals: `timeout` signals its child and then its group, a terminal's Ctrl-C reaches
// mpirun's children directly and through mpirun. So what comes within a second of the first counts as the same.
// Thread-safety: make and destroy it on one thread.
#ifndef SLOTWISE_SERVER_OPS_STOP_SIGNALS_H_
#define SLOTWISE_SERVER_OPS_STOP_SIGNALS_H_

#include <functional>
#include <string>
#include <string_view>
#include <thread>

namespace slotwise {

// Blocks the two signals in this thread and in those it starts from now on, so that StopSignals' thread gets them.
// A signal that comes before there is one waits for it. Call it before any thread is started.
void HoldStopSignals();

struct StopSignal {
  std::string_view name;  // "SIGTERM"
  std::string sender;     // the sending program's name, as far as it is known: "mpirun", "bash"
};

class StopSignals {
 public:
  // REQUIRES: HoldStopSignals was called. `on_first` is called on a thread of its own.
  explicit StopSignals(std::function<void(const StopSignal&)> on_first);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

 private:
  void Wait();

  std::function<void(const StopSignal&)> on_first_;
  std::thread thread_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_OPS_STOP_SIGNALS_H_
