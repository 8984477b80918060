// NamedPipe sends messages to one process from threads of other processes on its machine, while MPI is busy.
//
// Messages are short sentences. Each arrives whole; those of different senders arrive in any order.
// Thread-safety: any thread may Send. Errors: std::system_error.
#ifndef SLOTWISE_TESTS_SUPPORT_NAMED_PIPE_H_
#define SLOTWISE_TESTS_SUPPORT_NAMED_PIPE_H_

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

namespace slotwise::test {

class NamedPipe {
 public:
  // Makes the pipe, with a unique name, and its reader's end.
  NamedPipe() : path_(NewPath()), is_reader_(true) {
    Must(mkfifo(path_.c_str(), 0600), "mkfifo");
    file_ = Must(open(path_.c_str(), O_RDWR | O_CLOEXEC),
                 "open");  // opening for reading alone would wait for a sender
  }
  // Makes a sender's end. REQUIRES: the reader's end exists.
  explicit NamedPipe(std::string path) : path_(std::move(path)) {
    file_ = Must(open(path_.c_str(), O_WRONLY | O_CLOEXEC), "open");
  }
  ~NamedPipe() {
    close(file_);
    if (is_reader_) unlink(path_.c_str());
  }
  NamedPipe(const NamedPipe&) = delete;
  NamedPipe& operator=(const NamedPipe&) = delete;

  const std::string& path() const { return path_; }

  void Send(const std::string& sentence) {
    Message message{};
    sentence.copy(message.data(), message.size() - 1);
    Must(write(file_, message.data(), message.size()), "write");
  }

  // Waits for one message. Returns nothing if `limit` passes first.
  std::optional<std::string> Receive(std::chrono::milliseconds limit) {
    pollfd readable{file_, POLLIN, 0};
    if (Must(poll(&readable, 1, static_cast<int>(limit.count())), "poll") == 0) return std::nullopt;
    Message message{};
    Must(read(file_, message.data(), message.size()), "read");
    return message.data();
  }

 private:
  using Message = std::array<char, 256>;
  static_assert(sizeof(Message) <= PIPE_BUF);  // a write of this size is atomic

  static std::string NewPath() {
    static int made = 0;
    const std::string name = "slotwise." + std::to_string(getpid()) + "." + std::to_string(made++);
    return std::filesystem::temp_directory_path() / name;
  }

  template <class Number>
  static Number Must(Number returned, const char* what) {
    if (returned < 0) throw std::system_error(errno, std::generic_category(), what);
    return returned;
  }

  const std::string path_;
  const bool is_reader_ = false;
  int file_ = -1;
};

}  // namespace slotwise::test

#endif  // SLOTWISE_TESTS_SUPPORT_NAMED_PIPE_H_
