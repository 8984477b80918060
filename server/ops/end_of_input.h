// Calls a function at the end of a file such as standard input. A server whose standard input is a pipe
// thereby learns that the program at the other end has ended, in whatever way.
//
// Thread-safety: make and destroy it on one thread.
#ifndef SLOTWISE_SERVER_OPS_END_OF_INPUT_H_
#define SLOTWISE_SERVER_OPS_END_OF_INPUT_H_

#include <functional>
#include <thread>

namespace slotwise {

class EndOfInput {
 public:
  // Reads and discards `input`, a file descriptor that it does not close, and calls `on_end` once at its end,
  // on a thread of its own. An input that cannot be read counts as ended. Throws std::system_error if there
  // are no file descriptors left.
  EndOfInput(int input, std::function<void()> on_end);
  ~EndOfInput();
  EndOfInput(const EndOfInput&) = delete;
  EndOfInput& operator=(const EndOfInput&) = delete;

 private:
  void Wait();

  const int input_;
  const int stop_;  // an eventfd, which the destructor makes readable
  std::function<void()> on_end_;
  std::thread thread_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_OPS_END_OF_INPUT_H_
