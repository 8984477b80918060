// FolderLock lets one program at a time use a folder.
//
// The lock is flock(2) on a file in the folder; the kernel releases the lock however its holder ends. NFS
// carries the lock between hosts (unless mounted nolock or local_lock=flock), and so does Lustre if mounted
// with flock. A host that is cut off from its NFS server loses the lock. The file's text says, for people,
// who holds the lock. The lock belongs to the file, not to its name: if a process removes or replaces the
// file, or puts a copy in the folder's place, another program can take the same lock. StillHeld detects this.
// Thread-safety: StillHeld, any thread; all else, one thread at a time.
#ifndef SLOTWISE_SERVER_DURABILITY_FOLDER_LOCK_H_
#define SLOTWISE_SERVER_DURABILITY_FOLDER_LOCK_H_

#include <chrono>
#include <string>
#include <utility>

#include "slotwise/status.h"

namespace slotwise {

class FolderLock {
 public:
  // Takes the lock FOLDER/FILE for a program of the name `program`, waiting for at most `patience`.
  // FAILED_PRECONDITION: another process holds the lock; the message names the process. UNAVAILABLE: the
  // folder cannot be used; the message says why.
  static Result<FolderLock> Take(const std::string& folder, const std::string& file,
                                 const std::string& program, std::chrono::milliseconds patience = {});

  // Returns whether a process holds FOLDER/FILE. A Take that meets this check fails, or retries after 50 ms.
  static bool IsHeld(const std::string& folder, const std::string& file);

  ~FolderLock();
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&&) = delete;

  // Returns OK if the lock's path still leads to the locked file. FAILED_PRECONDITION: the path does not, or
  // the system does not say, so another program may use the folder.
  Status StillHeld() const;

  // Returns the last holder that did not release the lock; empty if there is none.
  const std::string& last_holder() const { return last_holder_; }

 private:
  FolderLock(int file, std::string path) : file_(file), path_(std::move(path)) {}

  int file_;
  std::string path_;
  std::string last_holder_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_FOLDER_LOCK_H_
