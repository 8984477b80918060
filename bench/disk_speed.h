// Measures a folder's disk, in the same run as the operations that are compared with it: synced appends, and
// large writes and reads past the page cache (as `dd oflag=direct bs=16M conv=fsync` and `dd iflag=direct`
// do).
//
// Thread-safety: one thread at a time. Throws std::runtime_error if the folder cannot be used.
#ifndef SLOTWISE_BENCH_DISK_SPEED_H_
#define SLOTWISE_BENCH_DISK_SPEED_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace slotwise::bench {

class DiskSpeed {
 public:
  static constexpr std::size_t kBlock = std::size_t{16} << 20;

  // REQUIRES: `folder` exists. Files that are written are removed at once.
  explicit DiskSpeed(std::string folder);

  // Returns whether the file system supports direct I/O. If it does not, DirectWrite and DirectRead use the
  // page cache.
  bool takes_direct() const { return direct_; }

  // Appends records of `bytes` to a new file for `seconds`, with an fdatasync after each. Returns the seconds
  // a record.
  double SyncedAppend(std::size_t bytes, double seconds) const;

  // Writes a new file of `bytes`, 16 MiB at a time, and syncs it. Returns the seconds.
  double DirectWrite(std::uint64_t bytes) const;

  // Reads every file in `folder` and its subfolders, 16 MiB at a time. Returns the seconds.
  double DirectRead(const std::string& folder) const;

 private:
  struct FreeBlock {
    void operator()(void* block) const;
  };

  std::string path_;
  bool direct_ = true;
  std::unique_ptr<void, FreeBlock> block_;
};

// Returns the bytes of all files in a folder and its subfolders.
std::uint64_t BytesOfFolder(const std::string& folder);

// Drops a folder's files from the page cache, so that later reads come from the disk.
void ForgetPages(const std::string& folder);

}  // namespace slotwise::bench

#endif  // SLOTWISE_BENCH_DISK_SPEED_H_
