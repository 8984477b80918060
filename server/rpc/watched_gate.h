// WatchedGate is the Gate of a server with gRPC. It also cuts off callers that do not read their replies.
// Thread-safety: safe from any thread.
#ifndef SLOTWISE_SERVER_RPC_WATCHED_GATE_H_
#define SLOTWISE_SERVER_RPC_WATCHED_GATE_H_

#include <chrono>

#include "server/intake/gate.h"
#include "server/rpc/reply_watch.h"

namespace slotwise {

class WatchedGate : public Gate {
 public:
  // `access` is Gate's.
  explicit WatchedGate(std::chrono::milliseconds reply_timeout, const AccessControl* access = nullptr)
      : Gate(access), replies_(reply_timeout) {}

  ReplyWatch& replies() { return replies_; }

 private:
  ReplyWatch replies_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_WATCHED_GATE_H_
