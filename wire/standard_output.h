// What a program does about its standard output: it fails when what it wrote there is lost, and writes
// nothing to another file in the place of an output that is closed.
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

// What std::cout writes by while this is there: at once, and the first error is kept.
class StandardOutput final : public std::streambuf {
 public:
  StandardOutput() : before_(std::cout.rdbuf()) {
    HoldStreams();
    std::cout.rdbuf(this);
  }
  ~StandardOutput() override { std::cout.rdbuf(before_); }
  StandardOutput(const StandardOutput&) = delete;
  StandardOutput& operator=(const StandardOutput&) = delete;

  // Returns the exit code of `program`: `code`, or, where it is 0 though some of the output is lost, 1. Says
  // so on standard error then. A reader that had enough (`| head`) has lost nothing.
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
  // Opens /dev/null in the place of standard streams that are closed, so that no other file and no connection
  // gets their numbers. Writing there fails, as it does on a closed file.
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
