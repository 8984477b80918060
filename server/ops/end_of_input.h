// Turns the end of a file, such as standard input, into a function call: a server whose standard input is a
// pipe learns so that the program at the other end has ended, however it ended.
//
// Thread-safety: make and destroy it on one thread.
#ifndef SLOTWISE_SERVER_OPS_END_OF_INPUT_H_
#define SLOTWISE_SERVER_OPS_END_OF_INPUT_H_

#include <functional>
#include <thread>

namespace slotwise {

class EndOfInput {
 public:
  // Reads and forgets what comes from `input`, a file descriptor that it does not close, and calls `on_end`
  // once, on a thread of its own, at its end. An input that cannot be read counts as ended. Throws
  // std::system_error if there are no file descriptors left.
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
