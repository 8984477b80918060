// Reads files that a user names, and regular ones alone: whoever opens a FIFO may wait for ever, and whoever
// reads a device may read for ever.
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

// The most that a file of a table's options may have: table.json, and that of `create --file`.
inline constexpr std::uint64_t kMostOptionsBytes = 1 << 20;

class RegularFile {
 public:
  // Waits for nobody. NOT_FOUND: there is none. INVALID_ARGUMENT: it cannot be opened, or is no regular file.
  static Result<RegularFile> Open(const std::string& path);

  // Returns how many bytes it had when it was opened.
  std::uint64_t size() const { return size_; }
  // Reads the next bytes. Returns false if there are not so many, or they cannot be read.
  bool Read(std::span<std::byte> bytes);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  RegularFile(std::FILE* file, std::uint64_t size) : file_(file), size_(size) {}

  std::unique_ptr<std::FILE, Close> file_;
  std::uint64_t size_;
};

// Returns all that a file of a table's options has. Errors as of RegularFile::Open. INVALID_ARGUMENT, too: it
// has more than kMostOptionsBytes. UNAVAILABLE: it cannot be read.
Result<std::string> ReadOptionsFile(const std::string& path);

}  // namespace slotwise::ctl

#endif  // SLOTWISE_CLIENT_CTL_REGULAR_FILE_H_
