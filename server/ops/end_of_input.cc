#include "server/ops/end_of_input.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

namespace slotwise {
namespace {

int MakeEvent() {
  const int event = eventfd(0, EFD_CLOEXEC);
  if (event < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  return event;
}

bool Ended(int input) {
  std::array<char, 4096> forgotten;
  const ssize_t bytes = read(input, forgotten.data(), forgotten.size());
  return bytes == 0 || (bytes < 0 && errno != EINTR && errno != EAGAIN);
}

}  // namespace

EndOfInput::EndOfInput(int input, std::function<void()> on_end)
    : input_(input), stop_(MakeEvent()), on_end_(std::move(on_end)), thread_([this] { Wait(); }) {}

EndOfInput::~EndOfInput() {
  eventfd_write(stop_, 1);
  thread_.join();
  close(stop_);
}

void EndOfInput::Wait() {
  for (;;) {
    std::array<pollfd, 2> files{pollfd{input_, POLLIN, 0}, pollfd{stop_, POLLIN, 0}};
    if (poll(files.data(), files.size(), -1) < 0) continue;  // interrupted, for example by a debugger
    if (files[1].revents != 0) return;
    if (Ended(input_)) return on_end_();
  }
}

}  // namespace slotwise
