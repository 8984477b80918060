// Reads files that a user names. Only regular files are read, because opening a FIFO or reading a device may
// take for ever.
// Thread-safety: for one thread.
#ifndef SLOTWISE_CLIENT_CTL_REGULAR_FILE_H_
#define SLOTWISE_CLIENT_CTL_REGULAR_FILE_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>

#include "slotwise/status.h"

namespace slotwise::ctl {

// The largest size of a file of options: table.json, or the file of `create --file`.
inline constexpr std::uint64_t kMostOptionsBytes = 1 << 20;

class RegularFile {
 public:
  // Never blocks. NOT_FOUND: there is no file. INVALID_ARGUMENT: it cannot be opened, or is not regular.
  static Result<RegularFile> Open(const std::string& path);

  // Returns the bytes that the file had when it was opened.
  std::uint64_t size() const { return size_; }
  // Reads the next bytes. Returns false if there are too few, or they cannot be read.
  bool Read(std::span<std::byte> bytes);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  RegularFile(std::FILE* file, std::uint64_t size) : file_(file), size_(size) {}

  std::unique_ptr<std::FILE, Close> file_;
  std::uint64_t size_;
};

// Returns the whole contents of a file of options. Errors as of RegularFile::Open. INVALID_ARGUMENT also if
// the file has more than kMostOptionsBytes. UNAVAILABLE: the file cannot be read.
Result<std::string> ReadOptionsFile(const std::string& path);

}  // namespace slotwise::ctl

#endif  // SLOTWISE_CLIENT_CTL_REGULAR_FILE_H_
