// StreamedWrites: how a large file of the system goes to disk while it is being written.
//
// Pieces go past the system's memory (O_DIRECT), while their writer makes the next ones: what is copied into
// that memory has to find pages there, wait to be brought to disk, and be dropped, which takes a third of a
// fast disk's rate. A few pieces wait for the disk, so that it goes on while the writer does something else.
// A file system that has no such writes gets ordinary ones, which are brought to disk a piece at a time, and
// leave the system's memory some pieces behind that.
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
  // `file` is open at `path`, and stays open.
  StreamedWrites(int file, std::string path) : file_(file), path_(std::move(path)) {}
  // Waits for what is on its way.
  ~StreamedWrites();
  StreamedWrites(const StreamedWrites&) = delete;
  StreamedWrites& operator=(const StreamedWrites&) = delete;

  // Writes a piece, which stays in use until WritableFile::kPiecesLater more calls of Write, or one of Wait,
  // have returned: these tell of an error.
  Status Write(std::uint64_t offset, std::span<const std::byte> piece);
  // Returns once all pieces are written. Nothing is durable before a sync.
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
  int direct_ = -1;  // -1: there are no direct writes
  std::deque<std::pair<std::uint64_t, std::uint64_t>>
      written_;  // ordinary ones that stay in memory: from, to

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
