// Small files for people: who holds a lock, what a folder is known by. They are no state, so they do not go
// through FileSystem.
#ifndef SLOTWISE_SERVER_DURABILITY_SMALL_FILE_H_
#define SLOTWISE_SERVER_DURABILITY_SMALL_FILE_H_

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <string_view>

namespace slotwise {

// Returns the first 512 bytes of an open file, or what it has.
inline std::string ReadBeginning(int file) {
  std::array<char, 512> text{};
  const ssize_t bytes = pread(file, text.data(), text.size(), 0);
  return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(bytes, 0))};
}

// Writes an open file anew, and syncs it. Returns false, and sets errno, if that failed.
inline bool WriteWhole(int file, std::string_view text) {
  if (ftruncate(file, 0) != 0) return false;
  const ssize_t written = pwrite(file, text.data(), text.size(), 0);
  if (written >= 0 && static_cast<std::size_t>(written) != text.size()) errno = ENOSPC;
  return written == static_cast<ssize_t>(text.size()) && fsync(file) == 0;
}

// Lines of a file come from other hosts; what is not printable does not reach a terminal.
inline std::string FirstLine(const std::string& text) {
  std::string line = text.substr(0, text.find('\n'));
  std::ranges::replace_if(
      line, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return line;
}

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_SMALL_FILE_H_
