#include "server/durability/streamed_reads.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <string>
#include <system_error>

#include "server/durability/system_errors.h"

namespace slotwise {
namespace {

std::atomic<int> files_that_are_read_so = 0;

std::array<AlignedMemory, StreamedReads::kPieces> MakePieces() {
  std::array<AlignedMemory, StreamedReads::kPieces> pieces;
  for (AlignedMemory& piece : pieces) piece = AlignedMemory(StreamedReads::kPieceBytes);
  return pieces;
}

}  // namespace

std::unique_ptr<StreamedReads> StreamedReads::Open(int opened, std::uint64_t size) {
  if (size < kSmallestFile) return nullptr;
  const std::string path = "/proc/self/fd/" + std::to_string(opened);  // also works if the file was renamed
  const bool too_many = files_that_are_read_so.fetch_add(1) >= kMostFiles;
  const int file =
      too_many ? -1 : Uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT); });
  if (file >= 0) {
    try {
      return std::unique_ptr<StreamedReads>(new StreamedReads(file, size));
    } catch (const std::bad_alloc&) {
    } catch (const std::system_error&) {
    }
    ::close(file);
  }
  --files_that_are_read_so;
  return nullptr;
}

StreamedReads::StreamedReads(int file, std::uint64_t size) : file_(file), size_(size), memory_(MakePieces()) {
  for (std::size_t m = 0; m < kPieces; ++m) free_.push_back(m);
  thread_ = std::thread([this] { Run(); });
}

StreamedReads::~StreamedReads() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  thread_.join();
  ::close(file_);
  --files_that_are_read_so;
}

void StreamedReads::Begin(std::uint64_t begin, std::uint64_t end) {
  std::unique_lock lock(mutex_);
  if (begin != end_) {
    end_ = 0;  // stops further reads
    changed_.wait(lock, [this] { return !reading_; });
    while (!pieces_.empty()) ForgetFirst();
    next_ = begin / kDiskAlign * kDiskAlign;
  }
  end_ = std::min(end, size_);
  changed_.notify_all();
}

std::size_t StreamedReads::Read(std::uint64_t offset, std::span<std::byte> bytes) {
  std::size_t taken = 0;
  std::unique_lock lock(mutex_);
  while (taken < bytes.size()) {
    const std::uint64_t at = offset + taken;
    while (!pieces_.empty() && pieces_.front().begin + pieces_.front().size <= at) ForgetFirst();
    if (pieces_.empty()) {
      if (failed_ || at < next_ || at >= end_) break;
      changed_.wait(lock, [this] { return !pieces_.empty() || failed_; });
      continue;
    }
    const Piece piece = pieces_.front();
    if (at < piece.begin) break;
    const std::size_t within = at - piece.begin;
    const std::size_t part = std::min(piece.size - within, bytes.size() - taken);
    lock.unlock();
    std::memcpy(bytes.data() + taken, memory_[piece.memory].data() + within, part);
    taken += part;
    lock.lock();
    if (within + part == piece.size) ForgetFirst();
  }
  return taken;
}

void StreamedReads::ForgetFirst() {
  free_.push_back(pieces_.front().memory);
  pieces_.pop_front();
  changed_.notify_all();
}

void StreamedReads::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || (!failed_ && next_ < end_ && !free_.empty()); });
    if (stop_) return;
    const std::uint64_t begin = next_;
    const std::size_t memory = free_.front();
    free_.pop_front();
    reading_ = true;
    lock.unlock();
    const std::size_t came = ReadDirect(begin, memory_[memory].First(kPieceBytes));
    lock.lock();
    reading_ = false;
    if (came == 0) {
      failed_ = true;
      free_.push_back(memory);
    } else {
      pieces_.push_back({.begin = begin, .size = came, .memory = memory});
      next_ = begin + came;
      // A read that ends off a multiple of kDiskAlign has reached the file's end, or what is there of it.
      failed_ = !IsDiskAligned(next_) && next_ < size_;
    }
    changed_.notify_all();
  }
}

std::size_t StreamedReads::ReadDirect(std::uint64_t begin, std::span<std::byte> memory) const {
  const ssize_t came =
      Uninterrupted([&] { return ::pread(file_, memory.data(), memory.size(), static_cast<off_t>(begin)); });
  return came < 0 ? 0 : std::min<std::uint64_t>(static_cast<std::uint64_t>(came), size_ - begin);
}

}  // namespace slotwise
