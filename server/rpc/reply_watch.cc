#include "server/rpc/reply_watch.h"

#include <grpc/grpc.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace slotwise {

ReplyWatch::ReplyWatch(std::chrono::milliseconds limit)
    : limit_(limit), cut_off_(std::chrono::minutes(1)), thread_([this] { Run(); }) {}

ReplyWatch::~ReplyWatch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_all();
  thread_.join();
}

void ReplyWatch::Reply::Begin() {
  const std::lock_guard lock(watch_.mutex_);
  begun_ = Clock::now();
  place_ = watch_.replies_.insert(watch_.replies_.end(), this);
  watched_ = true;
}

void ReplyWatch::Reply::End() {
  const std::lock_guard lock(watch_.mutex_);
  if (watched_) watch_.replies_.erase(place_);
  watched_ = false;
}

void ReplyWatch::Run() {
  // This is short, so that a caller is cut off late by only a small part of the limit.
  const auto pause = std::clamp<std::chrono::milliseconds>(limit_ / 8, std::chrono::milliseconds(1),
                                                           std::chrono::seconds(1));
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, pause, [this] { return stop_; })) {
    // A reference keeps gRPC's call while it is cancelled outside the lock: gRPC may run OnDone, and so End,
    // on this thread.
    std::vector<std::pair<grpc_call*, Caller>> late;
    const Clock::time_point now = Clock::now();
    while (!replies_.empty() && now - replies_.front()->begun_ >= limit_) {
      Reply& reply = *replies_.front();
      replies_.pop_front();
      reply.watched_ = false;
      late.emplace_back(reply.context_.c_call(), reply.caller_);
      grpc_call_ref(late.back().first);
    }
    lock.unlock();
    for (const auto& [call, caller] : late) CutOff(call, caller);
    lock.lock();
  }
}

void ReplyWatch::CutOff(grpc_call* call, const Caller& caller) {
  if (const auto held_back = cut_off_.Pass()) {
    spdlog::warn(
        "cut off {}, which did not take a reply within limits.reply_timeout_ms, {} ms ({} more since the "
        "last such line)",
        caller.label(), limit_.count(), *held_back);
  }
  grpc_call_cancel_with_status(call, GRPC_STATUS_DEADLINE_EXCEEDED, "the reply was not taken in time",
                               nullptr);
  grpc_call_unref(call);
}

}  // namespace slotwise
