#include "server/launch/data_lock.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string_view>
#include <utility>

#include "server/durability/open_file.h"
#include "server/durability/small_file.h"

namespace slotwise::launch {
namespace {

constexpr std::size_t kTokenDigits = 32;

// A killed launcher holds its lock until the kernel has ended it.
constexpr std::chrono::seconds kPatience{10};

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

// Returns the folder's token, which is drawn the first time. REQUIRES: the lock is held.
Result<std::string> TokenOf(const std::string& folder) {
  const std::string path = folder + "/launch.id";
  const std::string partial = folder + "/.launch.id.partial";
  int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a FIFO would have no digits
  if (file >= 0) {
    const std::string token = FirstLine(ReadBeginning(file));
    close(file);
    const bool valid =
        token.size() == kTokenDigits && token.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (!valid)
      return Unavailable(path + " is not 32 hexadecimal digits: remove it once nothing runs on the folder");
    return token;
  }
  if (errno != ENOENT) return Failed("open", path);
  const auto made = OpenFile("make", partial, O_WRONLY | O_CREAT, 0644);
  if (!made.ok()) return Unavailable(made.status().message());
  file = made->number;
  const std::string token = Token();
  const bool written = WriteWhole(file, token + "\n");
  if (!written) {
    const Status failed = Failed("write", partial);
    close(file);
    return failed;
  }
  close(file);
  if (rename(partial.c_str(), path.c_str()) != 0) return Failed("rename", partial);
  return token;
}

Result<FolderLock> TakeLock(const std::string& folder) {
  const auto take = [&](std::chrono::milliseconds patience) {
    return FolderLock::Take(folder, "launch.lock", "slotwise-launch", patience);
  };
  auto lock = take({});
  if (lock.status().code() != StatusCode::kFailedPrecondition) return lock;
  spdlog::warn("{}: waits {} s for it", lock.status().message(), kPatience.count());
  return take(kPatience);
}

}  // namespace

Result<DataLock> DataLock::Take(const std::string& folder) {
  if (mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST) return Failed("make", folder);
  std::array<char, PATH_MAX> canonical{};
  if (realpath(folder.c_str(), canonical.data()) == nullptr) return Failed("use", folder);
  auto lock = TakeLock(canonical.data());
  if (!lock.ok()) return lock.status();
  const auto token = TokenOf(canonical.data());
  if (!token.ok()) return token.status();
  return DataLock(std::move(*lock), canonical.data(), *token);
}

}  // namespace slotwise::launch
