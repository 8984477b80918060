#include "bench/disk_speed.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>
#include <system_error>
#include <utility>

#include "bench/common_options.h"
#include "bench/timing.h"

namespace slotwise::bench {
namespace {

constexpr std::size_t kAlignment = 4096;

// Owns a file descriptor.
class File {
 public:
  File(const std::string& path, int flags) : path_(path), number_(::open(path.c_str(), flags, 0600)) {
    Check(number_ >= 0, "open");
  }
  ~File() { ::close(number_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int number() const { return number_; }
  void Check(bool holds, const char* operation) const {
    if (holds) return;
    const int error = errno;
    Must(false,
         "cannot " + std::string(operation) + " " + path_ + ": " + std::generic_category().message(error));
  }
  void Write(const void* bytes, std::size_t size) const {
    Check(::write(number_, bytes, size) == static_cast<ssize_t>(size), "write to");
  }

 private:
  std::string path_;
  int number_;
};

// Calls visit(path) for every file in a folder and the folders in it.
template <class Visit>
void ForEachFile(const std::string& folder, const Visit& visit) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) visit(entry.path().string());
  }
}

}  // namespace

void DiskSpeed::FreeBlock::operator()(void* block) const { std::free(block); }

DiskSpeed::DiskSpeed(std::string folder)
    : path_(std::move(folder) + "/disk-speed"), block_(std::aligned_alloc(kAlignment, kBlock)) {
  if (!block_) throw std::bad_alloc();
  std::memset(block_.get(), 0x5A, kBlock);
  const int number =
      ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC | O_DIRECT, 0600);
  direct_ = number >= 0;
  if (direct_) ::close(number);
  ::unlink(path_.c_str());
}

double DiskSpeed::SyncedAppend(std::size_t bytes, double seconds) const {
  const File file(path_, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC);
  ::unlink(path_.c_str());
  const auto begin = std::chrono::steady_clock::now();
  for (std::size_t records = 1;; ++records) {
    for (std::size_t left = bytes; left > 0; left -= std::min(left, kBlock))
      file.Write(block_.get(), std::min(left, kBlock));
    file.Check(::fdatasync(file.number()) == 0, "sync");
    const double passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (passed >= seconds) return passed / static_cast<double>(records);
  }
}

double DiskSpeed::DirectWrite(std::uint64_t bytes) const {
  const File file(path_, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC | (direct_ ? O_DIRECT : 0));
  ::unlink(path_.c_str());
  return SecondsOf([&] {
    for (std::uint64_t left = bytes; left > 0;) {
      const std::size_t size = std::min<std::uint64_t>(left, kBlock);
      // The last block is filled up to a whole page, as direct I/O requires.
      file.Write(block_.get(), (size + kAlignment - 1) / kAlignment * kAlignment);
      left -= size;
    }
    file.Check(::fsync(file.number()) == 0, "sync");
  });
}

double DiskSpeed::DirectRead(const std::string& folder) const {
  ForgetPages(folder);
  return SecondsOf([&] {
    ForEachFile(folder, [&](const std::string& path) {
      const File file(path, O_RDONLY | O_CLOEXEC | (direct_ ? O_DIRECT : 0));
      for (;;) {
        const ssize_t taken = ::read(file.number(), block_.get(), kBlock);
        file.Check(taken >= 0, "read");
        if (taken < static_cast<ssize_t>(kBlock)) break;
      }
    });
  });
}

std::uint64_t BytesOfFolder(const std::string& folder) {
  std::uint64_t bytes = 0;
  ForEachFile(folder, [&](const std::string& path) { bytes += std::filesystem::file_size(path); });
  return bytes;
}

void ForgetPages(const std::string& folder) {
  ForEachFile(folder, [](const std::string& path) {
    const File file(path, O_RDONLY | O_CLOEXEC);
    ::posix_fadvise(file.number(), 0, 0, POSIX_FADV_DONTNEED);
  });
}

}  // namespace slotwise::bench
