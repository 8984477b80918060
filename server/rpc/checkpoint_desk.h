// CheckpointDesk answers what callers ask of the folder of checkpoints, in two threads of its own, because
// disks take their time: one lists and describes, the other verifies.
//
// A server without a data folder refuses everything with FAILED_PRECONDITION. Past kMostWaiting, what would
// wait is RESOURCE_EXHAUSTED; so is a verification while there is one. Once the desk stops, all is
// UNAVAILABLE.
// NOT_FOUND: there is no checkpoint of that id. DATA_LOSS: what there is of it cannot be used; the message
// names the file.
// Thread-safety: any thread. Each `done` is called once: here if the desk refuses, else from one of its
// threads.
#ifndef SLOTWISE_SERVER_RPC_CHECKPOINT_DESK_H_
#define SLOTWISE_SERVER_RPC_CHECKPOINT_DESK_H_

#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "server/durability/checkpoints.h"
#include "server/engine/worker.h"
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

class CheckpointDesk {
 public:
  static constexpr std::size_t kMostWaiting = 64;

  explicit CheckpointDesk(std::optional<Checkpoints> checkpoints);
  ~CheckpointDesk() { Stop(); }
  CheckpointDesk(const CheckpointDesk&) = delete;
  CheckpointDesk& operator=(const CheckpointDesk&) = delete;

  // Returns FAILED_PRECONDITION if the server keeps nothing.
  Status KeepsCheckpoints() const;

  template <class Value>
  using Done = std::function<void(Result<Value>)>;
  void List(const Done<std::vector<ListedCheckpoint>>& done);
  void Describe(const std::string& id, const Done<DescribedCheckpoint>& done);
  // Reads all files of a checkpoint, and of those that it builds on. Ends with CANCELLED soon after `gone`
  // returns true, which the desk's thread calls.
  void Verify(const std::string& id, std::function<bool()> gone, Done<VerifiedCheckpoint> done);

  // Refuses what comes later, ends the verification that is under way, and returns once all are answered.
  void Stop();

 private:
  Status Enter();
  template <class Value>
  void Ask(const std::function<Result<Value>()>& answer, const Done<Value>& done);
  bool stopping();

  const std::optional<Checkpoints> checkpoints_;
  std::mutex mutex_;
  bool stopping_ = false;       // guarded by mutex_
  std::size_t waiting_ = 0;     // guarded by mutex_: to be listed or described
  std::string verifying_ = {};  // guarded by mutex_: an id, or nothing
  // None if there are no checkpoints, or Stop has returned.
  std::optional<Worker> reader_;
  std::optional<Worker> verifier_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_CHECKPOINT_DESK_H_
