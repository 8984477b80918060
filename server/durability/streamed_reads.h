// StreamedReads reads a large file of the system ahead, while its reader uses the bytes read before.
//
// Pieces bypass the page cache (O_DIRECT) and come a few ahead of the reader. The page cache would cost time
// to find pages and to drop them again, and a verification must read the disk itself.
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_SERVER_DURABILITY_STREAMED_READS_H_
#define SLOTWISE_SERVER_DURABILITY_STREAMED_READS_H_

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

#include "server/durability/aligned_memory.h"

namespace slotwise {

class StreamedReads {
 public:
  static constexpr std::size_t kPieceBytes = std::size_t{4} << 20;
  static constexpr std::size_t kPieces = 4;
  // Smaller files are not worth a thread. More files at a time would take too much memory.
  static constexpr std::uint64_t kSmallestFile = kPieces * kPieceBytes;
  static constexpr int kMostFiles = 8;

  // Returns null if the file, open as `opened` and of `size` bytes, is too small, the file system has no
  // direct reads, too many files are streamed already, or memory or threads are short.
  static std::unique_ptr<StreamedReads> Open(int opened, std::uint64_t size);
  ~StreamedReads();
  StreamedReads(const StreamedReads&) = delete;
  StreamedReads& operator=(const StreamedReads&) = delete;

  // Says that bytes [begin, end) will be read. They extend the range of the calls before if `begin` is that
  // range's end, and replace it otherwise.
  void Begin(std::uint64_t begin, std::uint64_t end);
  // Fills as many of `bytes`, from `offset` on, as have been or will be read, and forgets everything before
  // them. Returns their number. The caller reads the rest in another way, which also returns the error.
  std::size_t Read(std::uint64_t offset, std::span<std::byte> bytes);

 private:
  struct Piece {
    std::uint64_t begin = 0;
    std::size_t size = 0;
    std::size_t memory = 0;  // index in memory_
  };

  StreamedReads(int file, std::uint64_t size);
  void Run();
  // Returns the number of bytes read. Unless it is a multiple of kDiskAlign, no more bytes will come.
  std::size_t ReadDirect(std::uint64_t begin, std::span<std::byte> memory) const;
  void ForgetFirst();

  const int file_;
  const std::uint64_t size_;
  const std::array<AlignedMemory, kPieces> memory_;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  bool stop_ = false;
  bool reading_ = false;
  bool failed_ = false;
  std::uint64_t next_ = 0;  // the first byte that was not read yet
  std::uint64_t end_ = 0;   // end of the requested range
  std::deque<Piece> pieces_;
  std::deque<std::size_t> free_;  // indices in memory_
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_STREAMED_READS_H_
