// Closed while the server starts: calls that come before its tables are there get UNAVAILABLE, not NOT_FOUND.
// Thread-safety: safe from any thread.
#ifndef SLOTWISE_SERVER_RPC_GATE_H_
#define SLOTWISE_SERVER_RPC_GATE_H_

#include <atomic>

#include "slotwise/status.h"

namespace slotwise {

class Gate {
 public:
  void Open() { open_.store(true, std::memory_order_release); }

  // OK once it is open.
  Status Check() const {
    if (open_.load(std::memory_order_acquire)) return {};
    return Unavailable("the server is starting: try again");
  }

 private:
  std::atomic<bool> open_{false};
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_GATE_H_
