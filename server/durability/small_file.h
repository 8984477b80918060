// Small files for people, for example the text that says who holds a lock. They hold no state of the server,
// so they bypass FileSystem.
#ifndef SLOTWISE_SERVER_DURABILITY_SMALL_FILE_H_
#define SLOTWISE_SERVER_DURABILITY_SMALL_FILE_H_

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <string_view>

namespace slotwise {

// Returns up to 512 bytes from the beginning of an open file.
inline std::string ReadBeginning(int file) {
  std::array<char, 512> text{};
  const ssize_t bytes = pread(file, text.data(), text.size(), 0);
  return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(bytes, 0))};
}

// Replaces the contents of an open file and syncs it. Returns false and sets errno if that failed.
inline bool WriteWhole(int file, std::string_view text) {
  if (ftruncate(file, 0) != 0) return false;
  const ssize_t written = pwrite(file, text.data(), text.size(), 0);
  if (written >= 0 && static_cast<std::size_t>(written) != text.size()) errno = ENOSPC;
  return written == static_cast<ssize_t>(text.size()) && fsync(file) == 0;
}

// Returns the first line. Replaces unprintable bytes, because another host may have written the file.
inline std::string FirstLine(const std::string& text) {
  std::string line = text.substr(0, text.find('\n'));
  std::ranges::replace_if(
      line, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return line;
}

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_SMALL_FILE_H_
