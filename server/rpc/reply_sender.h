// ReplySender hands large replies to gRPC in threads of its own.
//
// gRPC writes a reply to the socket in the thread that hands it over, which copies the reply into the
// kernel's buffers. The engine's thread, which calls most `done`s, would take as long for that as for a
// round.
// Thread-safety: safe from any thread.
#ifndef SLOTWISE_SERVER_RPC_REPLY_SENDER_H_
#define SLOTWISE_SERVER_RPC_REPLY_SENDER_H_

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace slotwise {

class ReplySender {
 public:
  // Smaller replies are sent sooner by the thread that has them.
  static constexpr std::size_t kLeastBytes = std::size_t{64} << 10;

  // REQUIRES: threads >= 1. Throws std::system_error if they cannot be started.
  explicit ReplySender(int threads);
  // Calls what is still to be called, then returns.
  ~ReplySender();
  ReplySender(const ReplySender&) = delete;
  ReplySender& operator=(const ReplySender&) = delete;

  // Calls `send`, which must not throw: at once if the reply has few bytes, else soon, in another thread.
  // Large replies are begun in the order they come. There are never more of them than calls being served.
  void Send(std::size_t bytes, std::function<void()> send);

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> to_send_;
  bool ending_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_REPLY_SENDER_H_
