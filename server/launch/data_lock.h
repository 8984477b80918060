// DataLock: one launcher holds a data folder.
//
// The lock is flock(2) on FOLDER/launch.lock, which the kernel lets go of however its holder ends. NFS
// carries it between hosts (unless mounted nolock or local_lock=flock), Lustre if mounted with flock; a host
// that is cut off from its NFS server loses it. The file says who holds the lock, for people.
// Thread-safety: one thread.
#ifndef SLOTWISE_SERVER_LAUNCH_DATA_LOCK_H_
#define SLOTWISE_SERVER_LAUNCH_DATA_LOCK_H_

#include <string>

#include "slotwise/status.h"

namespace slotwise::launch {

class DataLock {
 public:
  // Makes the folder if its parent exists, and takes the lock. FAILED_PRECONDITION: another launcher holds
  // it, which the message names. UNAVAILABLE: the folder cannot be used, and why.
  static Result<DataLock> Take(const std::string& folder);

  ~DataLock();
  DataLock(DataLock&& other) noexcept;
  DataLock& operator=(DataLock&&) = delete;

  // The folder's canonical path.
  const std::string& folder() const { return folder_; }
  // Names what is started on this folder: what the folder keeps in launch.id, ":", and its path. A copy of
  // the folder has another, and so does a folder that was moved.
  const std::string& id() const { return id_; }
  // Who held the lock last and did not give it back; empty if nobody.
  const std::string& last_holder() const { return last_holder_; }

 private:
  DataLock(int file, std::string folder) : file_(file), folder_(std::move(folder)) {}
  Status Begin();

  int file_;
  std::string folder_;
  std::string id_;
  std::string last_holder_;
};

}  // namespace slotwise::launch

#endif  // SLOTWISE_SERVER_LAUNCH_DATA_LOCK_H_
