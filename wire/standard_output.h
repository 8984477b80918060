// Guards a program's standard output: the program fails if its output is lost, and never writes into another
// file that has got the number of a closed output.
// Thread-safety: for main()'s thread.
#ifndef SLOTWISE_WIRE_STANDARD_OUTPUT_H_
#define SLOTWISE_WIRE_STANDARD_OUTPUT_H_

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <streambuf>

namespace slotwise {

// The buffer of std::cout during its lifetime. It writes at once, and keeps the first error.
class StandardOutput final : public std::streambuf {
 public:
  StandardOutput() : before_(std::cout.rdbuf()) {
    HoldStreams();
    std::cout.rdbuf(this);
  }
  ~StandardOutput() override { std::cout.rdbuf(before_); }
  StandardOutput(const StandardOutput&) = delete;
  StandardOutput& operator=(const StandardOutput&) = delete;

  // Returns the exit code of `program`: 1 if `code` is 0 but output is lost, which is then said on standard
  // error; else `code`. If the reader has closed the pipe (`| head`), nothing is lost.
  int ExitCode(const char* program, int code) {
    // Some file systems say only at a close that a disk is full.
    const int again = error_ == 0 ? dup(STDOUT_FILENO) : -1;
    if (again >= 0 && close(again) != 0) error_ = errno;
    if (error_ == 0 || error_ == EPIPE) return code;
    std::fprintf(stderr, "%s: standard output cannot be written, and some of it is lost: %s\n", program,
                 std::strerror(error_));
    return code == 0 ? 1 : code;
  }

 protected:
  std::streamsize xsputn(const char* bytes, std::streamsize size) override {
    std::streamsize written = 0;
    while (error_ == 0 && written < size) {
      const ssize_t now = write(STDOUT_FILENO, bytes + written, static_cast<std::size_t>(size - written));
      if (now >= 0) written += now;
      if (now < 0 && errno != EINTR) error_ = errno;
    }
    return written;
  }
  int_type overflow(int_type byte) override {
    const char one = traits_type::to_char_type(byte);
    return xsputn(&one, 1) == 1 ? byte : traits_type::eof();
  }

 private:
  // Opens /dev/null in the place of closed standard streams, so that no other file or connection gets their
  // numbers. Writing there fails, as on a closed file.
  static void HoldStreams() {
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
      if (fcntl(stream, F_GETFD) >= 0) continue;
      // The lowest free number is this one.
      if (open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) return;
    }
  }

  std::streambuf* const before_;
  int error_ = 0;  // errno of the first write that failed
};

}  // namespace slotwise

#endif  // SLOTWISE_WIRE_STANDARD_OUTPUT_H_
