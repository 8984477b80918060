#include "server/launch/data_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <random>
#include <string_view>
#include <utility>

namespace slotwise::launch {
namespace {

constexpr std::size_t kTokenDigits = 32;
constexpr std::size_t kMostHolder = 512;  // bytes of the lock's text that are read

Status Failed(const std::string& what, const std::string& path) {
  return Unavailable("cannot " + what + " " + path + ": " + std::strerror(errno));
}

std::string Token() {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::random_device random;
  std::string token;
  while (token.size() < kTokenDigits) token += kDigits[random() % kDigits.size()];
  return token;
}

// Returns a small file's beginning.
std::string ReadSome(int file) {
  std::array<char, kMostHolder> text{};
  const ssize_t bytes = pread(file, text.data(), text.size(), 0);
  return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(bytes, 0))};
}

bool WriteAll(int file, std::string_view text) {
  if (ftruncate(file, 0) != 0) return false;
  const ssize_t written = pwrite(file, text.data(), text.size(), 0);
  if (written >= 0 && static_cast<std::size_t>(written) != text.size()) errno = ENOSPC;
  return written == static_cast<ssize_t>(text.size()) && fsync(file) == 0;
}

// Returns who this process is: "host pid 12 since 2026-01-31T23:59:59Z".
std::string Self() {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  std::array<char, 32> time{};
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  std::strftime(time.data(), time.size(), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
  return std::string(host.data()) + " pid " + std::to_string(getpid()) + " since " + time.data();
}

// Lines of a file come from other hosts; what is not printable does not reach a terminal.
std::string FirstLine(const std::string& text) {
  std::string line = text.substr(0, text.find('\n'));
  std::ranges::replace_if(
      line, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return line;
}

// Returns what the folder is known by, which is drawn the first time. REQUIRES: the lock is held.
Result<std::string> TokenOf(const std::string& folder) {
  const std::string path = folder + "/launch.id";
  const std::string partial = folder + "/.launch.id.partial";
  int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file >= 0) {
    const std::string token = FirstLine(ReadSome(file));
    close(file);
    const bool valid =
        token.size() == kTokenDigits && token.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (!valid)
      return Unavailable(path + " is not 32 hexadecimal digits: remove it once nothing runs on the folder");
    return token;
  }
  if (errno != ENOENT) return Failed("open", path);
  file = open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) return Failed("make", partial);
  const std::string token = Token();
  const bool written = WriteAll(file, token + "\n");
  if (!written) {
    const Status failed = Failed("write", partial);
    close(file);
    return failed;
  }
  close(file);
  if (rename(partial.c_str(), path.c_str()) != 0) return Failed("rename", partial);
  return token;
}

}  // namespace

Result<DataLock> DataLock::Take(const std::string& folder) {
  if (mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST) return Failed("make", folder);
  std::array<char, PATH_MAX> canonical{};
  if (realpath(folder.c_str(), canonical.data()) == nullptr) return Failed("use", folder);
  const std::string path = std::string(canonical.data()) + "/launch.lock";
  // For writing, because NFS makes of it a lock that its server keeps.
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) return Failed("open", path);
  DataLock lock(file, canonical.data());
  if (flock(file, LOCK_EX | LOCK_NB) != 0) {
    const bool held = errno == EWOULDBLOCK;
    Status refusal = Failed("lock", path);
    if (held) {
      const std::string holder = FirstLine(ReadSome(file));
      refusal = FailedPrecondition(lock.folder_ + " is held by slotwise-launch on " +
                                   (holder.empty() ? "a host that it does not name" : holder));
    }
    close(std::exchange(lock.file_, -1));
    return refusal;
  }
  if (Status begun = lock.Begin(); !begun.ok()) return begun;
  return lock;
}

Status DataLock::Begin() {
  last_holder_ = FirstLine(ReadSome(file_));
  if (!WriteAll(file_, Self() + "\n")) return Failed("write", folder_ + "/launch.lock");
  const auto token = TokenOf(folder_);
  if (!token.ok()) return token.status();
  id_ = *token + ":" + folder_;
  return {};
}

DataLock::DataLock(DataLock&& other) noexcept
    : file_(std::exchange(other.file_, -1)),
      folder_(std::move(other.folder_)),
      id_(std::move(other.id_)),
      last_holder_(std::move(other.last_holder_)) {}

// The file stays: a launcher that had opened it and one that makes a new one would each hold a lock.
DataLock::~DataLock() {
  if (file_ < 0) return;
  static_cast<void>(ftruncate(file_, 0) == 0);  // the text is for people only
  close(file_);
}

}  // namespace slotwise::launch
