#include "server/durability/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <thread>
#include <utility>

#include "server/durability/open_file.h"
#include "server/durability/small_file.h"

namespace slotwise {
namespace {

constexpr std::chrono::milliseconds kPause{50};

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

Status Failed(const std::string& what, const std::string& path) {
  return Unavailable("cannot " + what + " " + path + ": " + std::strerror(errno));
}

}  // namespace

Result<FolderLock> FolderLock::Take(const std::string& folder, const std::string& name,
                                    const std::string& program, std::chrono::milliseconds patience) {
  const std::string path = folder + "/" + name;
  // The file is opened to write, because NFS then asks its server for the lock.
  const auto opened = OpenFile("lock", path, O_RDWR | O_CREAT, 0644);
  if (!opened.ok()) return Unavailable(opened.status().message());
  const int file = opened->number;
  FolderLock lock(file, path);
  const auto end = std::chrono::steady_clock::now() + patience;
  bool locked = false;
  while (!(locked = flock(file, LOCK_EX | LOCK_NB) == 0) && errno == EWOULDBLOCK &&
         std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(kPause);
  }
  if (!locked) {
    const bool held = errno == EWOULDBLOCK;
    Status refusal = Failed("lock", path);
    if (held) {
      const std::string holder = FirstLine(ReadBeginning(file));
      refusal = FailedPrecondition(folder + " is held by " + program + " on " +
                                   (holder.empty() ? "a host that it does not name" : holder));
    }
    close(std::exchange(lock.file_, -1));
    return refusal;
  }
  lock.last_holder_ = FirstLine(ReadBeginning(file));
  static_cast<void>(WriteWhole(file, Self() + "\n"));  // on a full disk the lock names no holder
  return lock;
}

bool FolderLock::IsHeld(const std::string& folder, const std::string& name) {
  const auto opened = OpenFile("look at", folder + "/" + name, O_RDONLY);
  if (!opened.ok()) return false;
  const bool held = flock(opened->number, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(opened->number);
  return held;
}

FolderLock::FolderLock(FolderLock&& other) noexcept
    : file_(std::exchange(other.file_, -1)),
      path_(std::move(other.path_)),
      last_holder_(std::move(other.last_holder_)) {}

Status FolderLock::StillHeld() const {
  struct stat held {};
  struct stat named {};
  std::string why = "it was replaced";
  if (fstat(file_, &held) != 0 || stat(path_.c_str(), &named) != 0) {
    why = std::strerror(errno);
  } else if (held.st_dev == named.st_dev && held.st_ino == named.st_ino) {
    return {};
  }
  return FailedPrecondition(path_ + " is not the file that this process has locked (" + why +
                            "): another server may use the folder");
}

// The file stays. Otherwise a process that has the file open and a process that makes a new one could each
// hold a lock.
FolderLock::~FolderLock() {
  if (file_ < 0) return;
  static_cast<void>(ftruncate(file_, 0) == 0);  // the text is for people only
  close(file_);
}

}  // namespace slotwise
