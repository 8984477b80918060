// CheckpointService answers calls about the folder of checkpoints in two threads of its own, because disks
// are slow: one lists, describes, pins and releases, the other verifies and compacts.
//
// A server without a data folder refuses all calls with FAILED_PRECONDITION. RESOURCE_EXHAUSTED: kMostWaiting
// calls wait, or another checkpoint is being verified or compacted. UNAVAILABLE: the service has stopped.
// NOT_FOUND: there is no checkpoint of that id. DATA_LOSS: the checkpoint is damaged; the message names the
// file. INTERNAL: the system cannot read the checkpoint; the message names the file.
// Thread-safety: any thread. Each `done` is called once: by the caller's thread if the service refuses, else
// by one of the service's threads.
#ifndef SLOTWISE_SERVER_RPC_CHECKPOINT_SERVICE_H_
#define SLOTWISE_SERVER_RPC_CHECKPOINT_SERVICE_H_

#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "server/durability/checkpoints.h"
#include "server/engine/worker.h"
#include "server/rpc/stoppable_files.h"
#include "slotwise/status.h"

namespace slotwise {

struct VerifiedCheckpoint {
  std::vector<std::string> chain;  // the base first
  ReadBack read;
};

struct DescribedCheckpoint {
  ListedCheckpoint listed;  // with a manifest
  std::string folder;
};

class CheckpointService {
 public:
  static constexpr std::size_t kMostWaiting = 64;

  explicit CheckpointService(std::optional<Checkpoints> checkpoints);
  ~CheckpointService() { Stop(); }
  CheckpointService(const CheckpointService&) = delete;
  CheckpointService& operator=(const CheckpointService&) = delete;

  // Returns FAILED_PRECONDITION if the server has no data folder.
  Status KeepsCheckpoints() const;

  template <class Value>
  using Done = std::function<void(Result<Value>)>;
  void List(const Done<std::vector<ListedCheckpoint>>& done);
  void Describe(const std::string& id, const Done<DescribedCheckpoint>& done);
  // Reads all files of a checkpoint and of those that it builds on. Ends with CANCELLED soon after `gone`,
  // which the service's thread calls, has returned true.
  void Verify(const std::string& id, std::function<bool()> gone, Done<VerifiedCheckpoint> done);

  // Pins a checkpoint that can be used, or releases one (checkpoints.h).
  void Pin(const std::string& id, const Done<ListedCheckpoint>& done);
  void Release(const std::string& id, const Done<ListedCheckpoint>& done);
  // Compacts a delta and all that it builds on into a base (compaction.h). Can be cancelled as Verify can,
  // and then leaves no files. FAILED_PRECONDITION: it is a base. ALREADY_EXISTS: it was compacted before.
  void Compact(const std::string& id, const std::string& server_version, std::function<bool()> gone,
               Done<ListedCheckpoint> done);

  // Refuses later calls, ends long work that is under way, and returns once all calls are answered.
  void Stop();

 private:
  Status Enter();
  template <class Value>
  void Ask(const std::function<Result<Value>()>& answer, const Done<Value>& done);
  // Runs `work` in the thread of long work, one at a time.
  template <class Value>
  void Begin(const std::string& id, const std::string& doing, std::function<bool()> gone,
             StoppableFiles::Changes changes, std::function<Result<Value>(const Checkpoints&)> work,
             Done<Value> done);
  bool stopping();

  const std::optional<Checkpoints> checkpoints_;
  std::mutex mutex_;
  bool stopping_ = false;       // guarded by mutex_
  std::size_t waiting_ = 0;     // guarded by mutex_: calls to list or describe
  std::string long_work_ = {};  // guarded by mutex_: the long work under way; empty: none
  // Both are empty if there are no checkpoints, or Stop has returned.
  std::optional<Worker> reader_;
  std::optional<Worker> long_worker_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_CHECKPOINT_SERVICE_H_
