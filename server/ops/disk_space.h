// DiskSpace reads the free space of a folder's file system every few seconds.
//
// Its own thread reads, because a network's file system may not answer, and callers must not wait.
// Thread-safety: Read, any thread.
#ifndef SLOTWISE_SERVER_OPS_DISK_SPACE_H_
#define SLOTWISE_SERVER_OPS_DISK_SPACE_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace slotwise {

class DiskSpace {
 public:
  static constexpr std::chrono::seconds kEvery{5};
  static constexpr std::chrono::seconds kStale{30};

  struct Reading {
    std::uint64_t bytes = 0;
    std::uint64_t free_bytes = 0;  // free for this process's user, without regard to quotas
  };

  explicit DiskSpace(std::string folder);
  ~DiskSpace();  // waits for a reading that is under way
  DiskSpace(const DiskSpace&) = delete;
  DiskSpace& operator=(const DiskSpace&) = delete;

  // Returns the newest reading; nothing if the file system has not answered within kStale, or has no such
  // Returns the newest reading; nothing if the file system was silent for kStale, or has no such folder.
  std::optional<Reading> Read() const;

 private:
  void Run();

  const std::string folder_;
  mutable std::mutex mutex_;
  std::condition_variable stops_;
  bool stopping_ = false;  // guarded by mutex_, as are the next two
  std::optional<Reading> newest_;
  std::chrono::steady_clock::time_point read_at_;
  std::thread thread_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_OPS_DISK_SPACE_H_
