// StreamedReads: how a large file of the system comes from the disk while what came before is used.
//
// Pieces come past the system's memory (O_DIRECT), a few ahead of their reader: what goes through that memory
// has to find pages there and be dropped from them again, and to verify what is on disk, the disk has to be
// read.
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
  // Smaller files are not worth a thread, and so many at a time are worth the memory.
  static constexpr std::uint64_t kSmallestFile = kPieces * kPieceBytes;
  static constexpr int kMostFiles = 8;

  // Null if the file, which is open as `opened` and of `size` bytes, is too small, the file system has no
  // direct reads, too many files are read so already, or memory or threads are short.
  static std::unique_ptr<StreamedReads> Open(int opened, std::uint64_t size);
  ~StreamedReads();
  StreamedReads(const StreamedReads&) = delete;
  StreamedReads& operator=(const StreamedReads&) = delete;

  // Bytes [begin, end) of the file will be read: behind those of the calls before, if `begin` is their end,
  // or else instead of them.
  void Begin(std::uint64_t begin, std::uint64_t end);
  // Fills as many of `bytes`, from `offset` on, as are on their way, and forgets what lies before. Returns
  // how many: the caller reads the others another way, which also tells of errors.
  std::size_t Read(std::uint64_t offset, std::span<std::byte> bytes);

 private:
  struct Piece {
    std::uint64_t begin = 0;
    std::size_t size = 0;
    std::size_t memory = 0;  // whose number it is
  };

  StreamedReads(int file, std::uint64_t size);
  void Run();
  // Returns how many bytes came; fewer than a disk's multiple say that no more will.
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
  std::uint64_t next_ = 0;  // the first byte that was not read
  std::uint64_t end_ = 0;   // of what is wanted
  std::deque<Piece> pieces_;
  std::deque<std::size_t> free_;  // memory
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_STREAMED_READS_H_
