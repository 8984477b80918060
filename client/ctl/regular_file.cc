#include "client/ctl/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace slotwise::ctl {

Result<RegularFile> RegularFile::Open(const std::string& path) {
  const int number = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (number < 0 && (errno == ENOENT || errno == ENOTDIR)) return NotFound("cannot read " + path);
  struct stat status {};
  const bool is_there = number >= 0 && fstat(number, &status) == 0;
  const bool is_regular = is_there && S_ISREG(status.st_mode);
  if (std::FILE* const file = is_regular ? fdopen(number, "rb") : nullptr)
    return RegularFile(file, static_cast<std::uint64_t>(status.st_size));
  const std::string why = is_there && !is_regular ? "it is no regular file" : std::strerror(errno);
  if (number >= 0) close(number);
  return InvalidArgument("cannot read " + path + ": " + why);
}

bool RegularFile::Read(std::span<std::byte> bytes) {
  return std::fread(bytes.data(), 1, bytes.size(), file_.get()) == bytes.size();
}

Result<std::string> ReadOptionsFile(const std::string& path) {
  auto file = RegularFile::Open(path);
  if (!file.ok()) return file.status();
  if (file->size() > kMostOptionsBytes) {
    return InvalidArgument(path + " has " + std::to_string(file->size()) +
                           " bytes: a file of a table's options must have at most " +
                           std::to_string(kMostOptionsBytes));
  }
  std::string text(file->size(), '\0');
  if (!file->Read(std::as_writable_bytes(std::span(text)))) return Unavailable("cannot read " + path);
  return text;
}

}  // namespace slotwise::ctl
