#include "server/access/small_file.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace slotwise {
namespace {

Status CannotRead(int error) {
  return InvalidArgument(std::string("it cannot be read: ") + std::strerror(error));
}

// Reads up to `most` bytes and returns their number; -1, with errno, if the system refuses.
ssize_t ReadUpTo(int file, char* to, std::size_t most) {
  std::size_t size = 0;
  while (size < most) {
    const ssize_t read_now = read(file, to + size, most - size);
    if (read_now < 0 && errno == EINTR) continue;
    if (read_now < 0) return -1;
    if (read_now == 0) break;
    size += static_cast<std::size_t>(read_now);
  }
  return static_cast<ssize_t>(size);
}

// Returns a file's permissions in chmod's form: "0640".
std::string ModeOf(const struct stat& status) {
  std::string digits = "0";
  for (const int shift : {6, 3, 0}) digits += static_cast<char>('0' + ((status.st_mode >> shift) & 7U));
  return digits;
}

Result<SecretText> ReadOpen(int file, std::size_t most) {
  struct stat status {};
  if (fstat(file, &status) != 0) return CannotRead(errno);
  if (!S_ISREG(status.st_mode)) return InvalidArgument("it cannot be read: it is no regular file");
  // A user who may write a file of tokens could admit himself.
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return InvalidArgument("it has mode " + ModeOf(status) +
                           ": only its owner may be able to write it (chmod go-w)");
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size > most) return InvalidArgument("it is longer than " + std::to_string(most) + " bytes");
  SecretText text(size);
  // Also reads the byte after the last one, which must not exist.
  const ssize_t read_now = ReadUpTo(file, text.data(), size + 1);
  if (read_now < 0) return CannotRead(errno);
  if (std::cmp_not_equal(read_now, size)) return InvalidArgument("it changed while it was read");
  if (text.view().find('\0') != std::string_view::npos)
    return InvalidArgument("it has a NUL, so it is no text");
  return text;
}

}  // namespace

void SecretText::Wipe() { OPENSSL_cleanse(bytes_.data(), bytes_.size()); }

std::string StampOf(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return {};
  return std::to_string(status.st_dev) + " " + std::to_string(status.st_ino) + " " +
         std::to_string(status.st_size) + " " + std::to_string(status.st_mtim.tv_sec) + "." +
         std::to_string(status.st_mtim.tv_nsec) + " " + std::to_string(status.st_ctim.tv_sec) + "." +
         std::to_string(status.st_ctim.tv_nsec);  // changes with the owner and the mode, too
}

std::string WhoElseReads(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0 || (status.st_mode & S_IROTH) == 0) return {};
  return "it has mode " + ModeOf(status) + ": every user of this host may read it (chmod o-r)";
}

Result<SecretText> ReadSmallFile(const std::string& path, std::size_t most) {
  // Opening a FIFO may take for ever, and opening a terminal may bring its signals.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) return CannotRead(errno);
  Result<SecretText> text = ReadOpen(file, most);
  close(file);
  return text;
}

}  // namespace slotwise
