// Calls a function at the first SIGTERM or SIGINT, so that the server finishes. A later signal ends the
// process at once.
//
// One stop often comes as several signals: `timeout` signals its child and then its group, and a terminal's
// Ctrl-C reaches mpirun's children both directly and through mpirun. So signals within a second of the first
// one count as one. SIGHUP, SIGUSR1 and SIGUSR2, which operators send from habit, are ignored and logged.
// Thread-safety: made and destroyed by one thread.
#ifndef SLOTWISE_SERVER_OPS_STOP_SIGNALS_H_
#define SLOTWISE_SERVER_OPS_STOP_SIGNALS_H_

#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

namespace slotwise {

// Blocks these signals in this thread and in the threads that it starts later, so that StopSignals' thread
// gets them. A signal that comes before StopSignals exists waits for it. Call this before any thread starts.
void HoldStopSignals();

struct StopSignal {
  std::string_view name;  // "SIGTERM"
  std::string sender;     // the sending program's name, if known: "mpirun", "bash"
};

class StopSignals {
 public:
  // Calls `on_first` on its own thread. REQUIRES: HoldStopSignals was called.
  explicit StopSignals(std::function<void(const StopSignal&)> on_first);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

 private:
  void Wait();

  std::function<void(const StopSignal&)> on_first_;
  std::atomic<bool> ends_ = false;
  std::thread thread_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_OPS_STOP_SIGNALS_H_
