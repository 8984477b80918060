// ReplyWatch cuts off callers that do not take their replies.
//
// A reply waits in this process until its caller takes it: gRPC sends no more than the caller's windows
// allow. The memory of such a reply is charged to the request queue's budget, so callers that never read
// would keep all others out. Hence a call is cancelled, and its reply freed, if gRPC has not handed all of
// the reply to the connection within the limit. (The connection itself ends if the system cannot get rid of
// its bytes for as long: rpc_server.cc.) Thread-safety: safe from any thread.
#ifndef SLOTWISE_SERVER_RPC_REPLY_WATCH_H_
#define SLOTWISE_SERVER_RPC_REPLY_WATCH_H_

#include <grpcpp/server_context.h>

#include <chrono>
#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

#include "server/engine/caller.h"
#include "server/intake/rare_log.h"

namespace slotwise {

class ReplyWatch {
 public:
  using Clock = std::chrono::steady_clock;

  explicit ReplyWatch(std::chrono::milliseconds limit);
  ~ReplyWatch();
  ReplyWatch(const ReplyWatch&) = delete;
  ReplyWatch& operator=(const ReplyWatch&) = delete;

  // A call's reply, or a message of its stream. Calls of Begin and End take turns.
  class Reply {
   public:
    Reply(ReplyWatch& watch, grpc::CallbackServerContext& context, Caller caller)
        : watch_(watch), context_(context), caller_(std::move(caller)) {}
    ~Reply() { End(); }
    Reply(const Reply&) = delete;
    Reply& operator=(const Reply&) = delete;

    // The reply is about to be given to gRPC: the caller has until the limit. The context lives until End.
    void Begin();
    // gRPC is done with the reply.
    void End();

   private:
    friend class ReplyWatch;
    ReplyWatch& watch_;
    grpc::CallbackServerContext& context_;
    const Caller caller_;
    std::list<Reply*>::iterator place_;
    bool watched_ = false;     // guarded by the watch's mutex
    Clock::time_point begun_;  // so is this
  };

 private:
  void Run();
  void CutOff(grpc_call* call, const Caller& caller);

  const std::chrono::milliseconds limit_;
  RareLog cut_off_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;
  std::list<Reply*> replies_;  // the oldest first
  std::thread thread_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_REPLY_WATCH_H_
