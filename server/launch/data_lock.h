// DataLock: one launcher holds a data folder, by FOLDER/launch.lock (folder_lock.h).
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
  // Makes the folder if its parent exists, and takes the lock. Waits 10 s for one that is held, and logs so.
  // FAILED_PRECONDITION: another launcher holds it, which the message names. UNAVAILABLE: the folder cannot
  // be used, and why.
  static Result<DataLock> Take(const std::string& folder);

  // The folder's canonical path.
  const std::string& folder() const { return folder_; }
  // Names what is started on this folder: what the folder keeps in launch.id, ":", and its path. A copy of
  // the folder has another, and so does a folder that was moved.
  const std::string& id() const { return id_; }
  // Who held the lock last and did not give it back; empty if none did.
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
