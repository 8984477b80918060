// Reads small files that an operator names and may change.
// Thread-safety: free functions; a SecretText is for one thread at a time.
#ifndef SLOTWISE_SERVER_ACCESS_SMALL_FILE_H_
#define SLOTWISE_SERVER_ACCESS_SMALL_FILE_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "slotwise/status.h"

namespace slotwise {

// A text that is wiped from memory when it is destroyed.
class SecretText {
 public:
  SecretText() = default;
  explicit SecretText(std::size_t size) : bytes_(size + 1) {}
  ~SecretText() { Wipe(); }
  SecretText(SecretText&& other) noexcept { bytes_.swap(other.bytes_); }
  SecretText& operator=(SecretText&& other) noexcept {
    bytes_.swap(other.bytes_);
    return *this;
  }
  SecretText(const SecretText&) = delete;
  SecretText& operator=(const SecretText&) = delete;

  char* data() { return bytes_.data(); }
  std::string_view view() const { return {c_str(), bytes_.empty() ? 0 : bytes_.size() - 1}; }
  const char* c_str() const { return bytes_.empty() ? "" : bytes_.data(); }

 private:
  void Wipe();

  std::vector<char> bytes_;  // ends with a NUL
};

// Returns a text that differs between a file and one that replaces it; empty: there is no file.
std::string StampOf(const std::string& path);

// Returns a sentence that begins with "it " if users other than the file's owner and group may read it; else
// an empty text.
std::string WhoElseReads(const std::string& path);

// Returns a file's contents. Never blocks. INVALID_ARGUMENT, with a reason that begins with "it ": the file
// cannot be read, is a directory, a device or a pipe, may be written by others than its owner, is longer than
// `most`, or has a NUL.
Result<SecretText> ReadSmallFile(const std::string& path, std::size_t most);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ACCESS_SMALL_FILE_H_
