// StreamedWrites brings a large file of the system to disk while it is being written.
//
// Pieces bypass the page cache (O_DIRECT), and go to disk while the writer makes the next ones. The page
// cache would take a third of a fast disk's rate, to find pages, write them back and drop them. A few pieces
// queue for the disk, so that the disk is busy while the writer does something else. On a file system without
// direct writes, ordinary ones are used: they are written back a piece at a time, and some pieces later
// dropped from the page cache.
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_SERVER_DURABILITY_STREAMED_WRITES_H_
#define SLOTWISE_SERVER_DURABILITY_STREAMED_WRITES_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "slotwise/status.h"

namespace slotwise {

class StreamedWrites {
 public:
  // `file` is open at `path`, and stays the caller's.
  StreamedWrites(int file, std::string path) : file_(file), path_(std::move(path)) {}
  // Waits for the pieces that are being written.
  ~StreamedWrites();
  StreamedWrites(const StreamedWrites&) = delete;
  StreamedWrites& operator=(const StreamedWrites&) = delete;

  // Writes a piece, which stays in use until WritableFile::kPiecesLater more calls of Write, or one of Wait,
  // have returned. These calls return its error.
  Status Write(std::uint64_t offset, std::span<const std::byte> piece);
  // Returns once all pieces are written. They are durable only after a sync.
  Status Wait();

 private:
  struct Piece {
    std::uint64_t offset = 0;
    std::span<const std::byte> bytes;
  };

  void OpenDirect();
  void Run();
  Status WriteDirect(const Piece& piece);
  Status WriteOrdinary(const Piece& piece);

  const int file_;
  const std::string path_;
  bool tried_direct_ = false;
  int direct_ = -1;  // -1: direct writes are not available
  std::deque<std::pair<std::uint64_t, std::uint64_t>>
      written_;  // ordinary ones still in the page cache: begin, end

  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  std::deque<Piece> waiting_;  // the first one is being written
  bool stop_ = false;
  Status status_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_STREAMED_WRITES_H_
