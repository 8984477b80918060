// DataLock lets one launcher at a time use a data folder, by FOLDER/launch.lock (folder_lock.h).
// Thread-safety: one thread.
#ifndef SLOTWISE_SERVER_LAUNCH_DATA_LOCK_H_
#define SLOTWISE_SERVER_LAUNCH_DATA_LOCK_H_

#include <string>
#include <utility>

#include "server/durability/folder_lock.h"
#include "slotwise/status.h"

namespace slotwise::launch {

class DataLock {
 public:
  // Makes the folder if its parent exists, and takes the lock. If the lock is held, waits up to 10 s and logs
  // that. FAILED_PRECONDITION: another launcher, which the message names, holds it. UNAVAILABLE: the folder
  // cannot be used; the message says why.
  static Result<DataLock> Take(const std::string& folder);

  // Returns the folder's canonical path.
  const std::string& folder() const { return folder_; }
  // Returns the id of processes that are started on this folder: the token in launch.id, ":", and the path. A
  // copied or moved folder has another id.
  const std::string& id() const { return id_; }
  // Returns the last holder that did not release the lock; empty: there was none.
  const std::string& last_holder() const { return lock_.last_holder(); }

 private:
  DataLock(FolderLock lock, std::string folder, const std::string& token)
      : lock_(std::move(lock)), folder_(std::move(folder)), id_(token + ":" + folder_) {}

  FolderLock lock_;
  std::string folder_;
  std::string id_;
};

}  // namespace slotwise::launch

#endif  // SLOTWISE_SERVER_LAUNCH_DATA_LOCK_H_
