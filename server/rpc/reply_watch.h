// ReplyWatch cuts off callers that do not read their replies.
//
// A reply stays in this process until its caller reads it, because gRPC sends no more than the caller's
// windows allow. Its memory is charged to the request queue's budget, so callers that never read would keep
// all others out. So a call is cancelled and its reply freed if gRPC has not handed the whole reply to the
// connection within the limit. (The connection itself ends if the system cannot send its bytes for as long:
// rpc_server.cc.) Thread-safety: safe from any thread.
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

  // A call's reply, or a message of its stream. Begin and End are called in turn.
  class Reply {
   public:
    Reply(ReplyWatch& watch, grpc::CallbackServerContext& context, Caller caller)
        : watch_(watch), context_(context), caller_(std::move(caller)) {}
    ~Reply() { End(); }
    Reply(const Reply&) = delete;
    Reply& operator=(const Reply&) = delete;

    // Called when the reply is about to be given to gRPC; starts the time limit. The context lives until End.
    void Begin();
    // Called when gRPC is done with the reply.
    void End();

   private:
    friend class ReplyWatch;
    ReplyWatch& watch_;
    grpc::CallbackServerContext& context_;
    const Caller caller_;
    std::list<Reply*>::iterator place_;
    bool watched_ = false;     // guarded by the watch's mutex
    Clock::time_point begun_;  // guarded likewise
  };

 private:
  void Run();
  void CutOff(grpc_call* call, const Caller& caller);

  const std::chrono::milliseconds limit_;
  RareLog cut_off_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;
  std::list<Reply*> replies_;  // oldest first
  std::thread thread_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_REPLY_WATCH_H_
