// FolderLock: one program holds a folder.
//
// The lock is flock(2) on a file in it, which the kernel lets go of however its holder ends. NFS carries it
// between hosts (unless mounted nolock or local_lock=flock), Lustre if mounted with flock; a host that is cut
// off from its NFS server loses it. The file says who holds the lock, for people. The lock is the file's, not
// the name's: a process that removes or replaces the file, or puts a copy in the folder's place, lets another
// program take the same lock. StillHeld tells.
// Thread-safety: StillHeld, any thread; else one thread.
#ifndef SLOTWISE_SERVER_DURABILITY_FOLDER_LOCK_H_
#define SLOTWISE_SERVER_DURABILITY_FOLDER_LOCK_H_

#include <chrono>
#include <string>
#include <utility>

#include "slotwise/status.h"

namespace slotwise {

class FolderLock {
 public:
  // Takes the lock FOLDER/FILE for a program of that name, and waits for it for `patience`.
  // FAILED_PRECONDITION: another process holds it, which the message names. UNAVAILABLE: the folder cannot be
  // used, and why.
  static Result<FolderLock> Take(const std::string& folder, const std::string& file,
                                 const std::string& program, std::chrono::milliseconds patience = {});

  // Returns whether a process has the lock FOLDER/FILE. A Take that meets this look at it waits out 50 ms.
  static bool IsHeld(const std::string& folder, const std::string& file);

  ~FolderLock();
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&&) = delete;

  // OK: the lock's path still leads to the file that is locked. FAILED_PRECONDITION: it does not, or the
  // system does not say, so another program may use the folder.
  Status StillHeld() const;

  // Who held the lock last and did not give it back; empty if none did.
  const std::string& last_holder() const { return last_holder_; }

 private:
  FolderLock(int file, std::string path) : file_(file), path_(std::move(path)) {}

  int file_;
  std::string path_;
  std::string last_holder_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_FOLDER_LOCK_H_
