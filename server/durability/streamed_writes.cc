#include "server/durability/streamed_writes.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "server/durability/aligned_memory.h"
#include "server/durability/file_system.h"
#include "server/durability/system_errors.h"

namespace slotwise {
namespace {

// The number of ordinary pieces of a file in the page cache, whose pages are then reused. In a virtual
// machine, pages that were never used before cost more than the copy into them.
constexpr std::size_t kPiecesInMemory = 4;

Status WriteAll(int file, const std::string& path, std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written =
        Uninterrupted([&] { return ::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(offset)); });
    if (written < 0) return SystemFailure("write to", path, errno);
    if (written == 0) return Unavailable("cannot write to " + path + ": it takes no more bytes");
    offset += static_cast<std::uint64_t>(written);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

}  // namespace

StreamedWrites::~StreamedWrites() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  if (direct_ >= 0) ::close(direct_);
}

void StreamedWrites::OpenDirect() {
  if (std::exchange(tried_direct_, true)) return;
  const std::string path = "/proc/self/fd/" + std::to_string(file_);  // also works if the file was renamed
  direct_ = Uninterrupted([&] { return ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_DIRECT); });
  if (direct_ < 0) return;
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error&) {  // the system gives no more threads; ordinary writes need none
    ::close(std::exchange(direct_, -1));
  }
}

Status StreamedWrites::Write(std::uint64_t offset, std::span<const std::byte> bytes) {
  OpenDirect();
  const Piece piece{offset, bytes};
  const bool aligned = IsDiskAligned(offset) && IsDiskAligned(bytes.size()) && IsDiskAligned(bytes.data());
  if (direct_ < 0 || !aligned) {
    if (Status status = Wait(); !status.ok()) return status;
    return WriteOrdinary(piece);
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return waiting_.size() < WritableFile::kPiecesLater; });
  if (!status_.ok()) return status_;
  waiting_.push_back(piece);
  changed_.notify_all();
  return {};
}

Status StreamedWrites::Wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return waiting_.empty(); });
  return status_;
}

void StreamedWrites::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !waiting_.empty() || stop_; });
    if (waiting_.empty()) return;
    const Piece piece = waiting_.front();
    const bool failed = !status_.ok();
    lock.unlock();
    Status written = failed ? Status() : WriteDirect(piece);
    lock.lock();
    if (!written.ok()) status_ = std::move(written);
    waiting_.pop_front();
    changed_.notify_all();
  }
}

Status StreamedWrites::WriteDirect(const Piece& piece) {
  std::uint64_t offset = piece.offset;
  std::span<const std::byte> bytes = piece.bytes;
  while (!bytes.empty()) {
    const ssize_t written = Uninterrupted(
        [&] { return ::pwrite(direct_, bytes.data(), bytes.size(), static_cast<off_t>(offset)); });
    // The disk needs larger multiples, or the file system refuses direct writes since an earlier part.
    if (written < 0 && errno == EINVAL) return WriteAll(file_, path_, offset, bytes);
    if (written < 0) return SystemFailure("write to", path_, errno);
    if (written == 0) return Unavailable("cannot write to " + path_ + ": it takes no more bytes");
    offset += static_cast<std::uint64_t>(written);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    if (!bytes.empty() && !IsDiskAligned(static_cast<std::uint64_t>(written))) {
      return WriteAll(file_, path_, offset, bytes);
    }
  }
  return {};
}

Status StreamedWrites::WriteOrdinary(const Piece& piece) {
  if (Status status = WriteAll(file_, path_, piece.offset, piece.bytes); !status.ok()) return status;
  const auto sync = [this](std::uint64_t begin, std::uint64_t end, unsigned flags) -> Status {
    const int result =
        ::sync_file_range(file_, static_cast<off_t>(begin), static_cast<off_t>(end - begin), flags);
    if (result == 0 || SyncsAtTheEnd(errno)) return {};
    return SystemFailure("write back", path_, errno);
  };
  const std::uint64_t end = piece.offset + piece.bytes.size();
  if (piece.offset == end) return {};  // a length of 0 would mean up to the file's end
  if (Status status = sync(piece.offset, end, SYNC_FILE_RANGE_WRITE); !status.ok()) return status;
  written_.emplace_back(piece.offset, end);
  if (written_.size() <= kPiecesInMemory) return {};
  const auto [oldest, oldest_end] = written_.front();
  written_.pop_front();
  constexpr unsigned kAll = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  if (Status status = sync(oldest, oldest_end, kAll); !status.ok()) return status;
  [[maybe_unused]] const int ignored = ::posix_fadvise(
      file_, static_cast<off_t>(oldest), static_cast<off_t>(oldest_end - oldest), POSIX_FADV_DONTNEED);
  return {};
}

}  // namespace slotwise
