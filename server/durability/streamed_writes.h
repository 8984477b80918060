// StreamedWrites: how a large file of the system goes to disk while it is being written.
//
// Pieces go past the system's memory (O_DIRECT), each while its writer makes the next one: what is copied
// into that memory has to find pages there, wait to be brought to disk, and be dropped, which takes a third
// of a fast disk's rate. A file system that has no such writes gets ordinary ones, which are brought to disk
// a piece at a time, and leave the system's memory some pieces behind that.
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
  // A direct write's place, size and memory are multiples of so many bytes.
  static constexpr std::size_t kAlign = 4096;

  // `file` is open at `path`, and stays open.
  StreamedWrites(int file, std::string path) : file_(file), path_(std::move(path)) {}
  // Waits for what is on its way.
  ~StreamedWrites();
  StreamedWrites(const StreamedWrites&) = delete;
  StreamedWrites& operator=(const StreamedWrites&) = delete;

  // Writes a piece, which stays in use until the next Write or Wait returns: that one tells of an error.
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
  bool busy_ = false;
  bool stop_ = false;
  Piece piece_;
  Status status_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_STREAMED_WRITES_H_
