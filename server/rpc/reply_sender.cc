#include "server/rpc/reply_sender.h"

#include <utility>

namespace slotwise {

ReplySender::ReplySender(int threads) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

ReplySender::~ReplySender() {
  const std::lock_guard lock(mutex_);
  ending_ = true;
  changed_.notify_all();
}

void ReplySender::Send(std::size_t bytes, std::function<void()> send) {
  if (bytes < kLeastBytes) return send();
  const std::lock_guard lock(mutex_);
  to_send_.push_back(std::move(send));
  changed_.notify_one();
}

void ReplySender::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ending_ || !to_send_.empty(); });
    if (to_send_.empty()) return;
    auto send = std::move(to_send_.front());
    to_send_.pop_front();
    lock.unlock();
    send();
    send = nullptr;  // what it holds ends before the lock begins
    lock.lock();
  }
}

}  // namespace slotwise
