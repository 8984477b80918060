// Checkpointing: decides when a running server makes a checkpoint, and which rank does which part of it.
//
// A checkpoint is the state after one round, of all ranks and tables. In that round every rank begins
// snapshots of its shards and gives them to a job, which its worker writes while rounds go on
// (checkpoint_job.h). Ranks report their progress by rounds, so that all ranks know the same:
//
//     round of SaveCheckpoint     every rank: snapshots begin; the journal begins a new segment
//     kWritten, of each rank      its files are on disk. After the last kWritten, ranks gather the lists of
//                                 files and rank 0's worker writes the manifest: the checkpoint exists
//     kPublished, of rank 0       every rank: snapshots end; the requests are answered
//     kVerified, of rank 0        all files were read back, its chain is complete, and unneeded checkpoints
//                                 were deleted: now the journal's older segments are deleted
//
// A request for another checkpoint waits until this one was verified. If the files on disk differ from what
// was written, kVerified reports it: the next checkpoint is a base, and is made at once. If a rank fails, its
// kWritten reports it, the others give up, and rank 0 removes the files. Rank 0 also folds a long chain into
// a base (kCompacted); if it finds damage in doing so (kDamaged), the next checkpoint is a base too.
// Thread-safety: the engine's thread only, but for Stats. Save, OnEvent and Stop are collective.
#ifndef SLOTWISE_SERVER_ENGINE_CHECKPOINTING_H_
#define SLOTWISE_SERVER_ENGINE_CHECKPOINTING_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/shard.h"
#include "server/collective/collective.h"
#include "server/counters/durability_counters.h"
#include "server/durability/checkpoints.h"
#include "server/durability/journal.h"
#include "server/engine/chain_folder.h"
#include "server/engine/checkpoint_job.h"
#include "server/engine/checkpoint_pace.h"
#include "server/engine/checkpoint_schedule.h"
#include "server/engine/durability_options.h"
#include "server/engine/operations/checkpoint_requests.h"
#include "server/engine/schedule/request.h"
#include "server/engine/tables.h"
#include "server/engine/worker.h"
#include "slotwise/status.h"

namespace slotwise {

// The state on disk from which checkpointing starts.
struct CheckpointBase {
  std::uint64_t lineage = 0;             // of the data folder
  std::optional<CheckpointName> newest;  // the one that the state was recovered from
  std::uint64_t newest_round = 0;
  std::uint64_t newest_bytes = 0;  // 0: there is none
  std::uint64_t newest_rows = 0;
  // The age of its state, by rank 0's clock. Without a checkpoint: how long the folder has been in use.
  std::chrono::milliseconds age{0};
  std::size_t links = 0;           // checkpoints in its chain
  std::uint64_t loaded_round = 0;  // the journal's last round that loaded a checkpoint
};

class Checkpointing {
 public:
  // `submit` submits a request to this rank's engine, and `nudge` tells the engine that Advance has work; the
  // worker calls both. The other arguments outlive it.
  Checkpointing(Device& device, Collective& collective, Tables& tables, std::function<void(Request)> submit,
                std::function<void()> nudge);
  ~Checkpointing();

  // Enables checkpoints. The age of `base` decides when the next one is due. `journal` may be null.
  void Use(const DurabilityOptions& options, std::uint64_t instance, const CheckpointBase& base,
           Journal* journal);

  // Returns OK, or why the server makes no checkpoints.
  Status KeepsCheckpoints() const;
  Checkpoints checkpoints() const { return {*options_.files, folder_}; }
  std::uint64_t data_lineage() const { return base_.lineage; }
  Threads& threads() const { return *options_.threads; }

  // Returns whether a checkpoint is under way: other saves and loads wait for it. The same on every rank.
  bool busy() const { return open_ != nullptr; }
  // Submits a request to save or load again once no checkpoint is under way.
  void Await(Request request);

  // A round saves a checkpoint. `done` is set on the rank that got the request. REQUIRES: not busy().
  using Done = std::function<void(Result<SavedCheckpoint>)>;
  void Save(std::uint64_t round, bool delta, DataType value_type, Done done);
  // A round loads checkpoint `loaded`, and will save the loaded state. Rank 0 keeps `loaded`, and the
  // checkpoint that was the newest before, until another one is loaded.
  Status KeepForLoad(std::uint64_t round, const std::string& loaded) const;
  void ForgetEarlierLoads(std::uint64_t round, const std::string& loaded) const;
  // A round has replaced tables. Saves the whole state and calls `done`. REQUIRES: not busy().
  void SaveLoaded(std::uint64_t round, Done done);
  // A round is about to alter rows, and their changes do not say how: the next checkpoint is a base.
  // REQUIRES: not busy().
  void BeginWithBase();
  // A rank has reported an event, or that it `failed`.
  void OnEvent(CheckpointEvent event, bool failed);

  // Called before every decision, with the agreed time and the last round that changed state.
  void OnDecision(std::uint64_t now_ms, std::uint64_t changed);
  // Reads some rows for the checkpoint that is under way, and asks for a new one when it is due by `now_ms`,
  // this rank's clock. Does not wait. On a CPU, an engine that has served others within the last 25 ms gives
  // the checkpoint little of its time; an engine at rest gives it a quarter of a millisecond a call.
  enum class Next : std::uint8_t {
    kNothing,  // the next call is due when something has changed
    kSoon,     // rows are on their way, or more may be read
    kInATick,  // more may be read in some milliseconds
  };
  Next Advance(std::uint64_t now_ms, bool idle);

  // Called before a batch changes rows of a shard. Makes sure that no checkpoint still needs the rows, by
  // reading them for the checkpoint if it has to. Gives the checkpoint up if the round would wait for its
  // files for longer than DurabilityOptions::longest_stall.
  void BeforeChange(const Shard& shard, FoundBatch& batch);
  // Keeps a dropped table's shard as long as a checkpoint has to read its rows. Null is none.
  void Keep(std::unique_ptr<Shard> shard);

  // Returns OK, or why updates are refused: the disk does not keep up with `durability.interval_s`, or has
  // lost written data. The same on all ranks.
  Status MayUpdate() const { return schedule_.MayUpdate(); }

  // For any thread. Returns nothing if there is no data folder.
  std::optional<CheckpointStats> Stats() const;

  // Called when the engine ends, after `rounds` rounds. Gives up the checkpoint that is under way. Saves
  // changes that no journal has in a last checkpoint, if the server makes checkpoints periodically.
  void Stop(std::uint64_t rounds);

 private:
  struct Open;

  std::string IdOf(std::uint64_t round) const {
    return CheckpointId({.round = round, .instance = instance_});
  }
  // Returns whether a checkpoint with values of that type would have other values than a table.
  bool Rounds(DataType value_type) const;
  Status Begin(std::uint64_t round, bool delta, DataType value_type, Open& open);
  void SaveLast(std::uint64_t round);
  void FoldLongChain();
  void EndSnapshots(bool kept);
  Next ReadSome();
  void Publish();
  // Called on rank 0, by any thread.
  Status PublishIfOurs(Manifest& manifest) const;
  void Fail(const Status& why);
  // The newest checkpoint cannot be restored: the next one is a base.
  void BeginAnew(const std::string& lost);
  void Close();  // ends the open checkpoint; submits the waiting requests again
  void Tell(CheckpointEvent event, bool failed);
  void RemoveOldSegments();
  void RemoveOldCheckpoints() const;  // on the worker

  Device& device_;
  Collective& collective_;
  Tables& tables_;
  const std::function<void(Request)> submit_;
  const std::function<void()> nudge_;
  DurabilityOptions options_;
  std::string folder_;
  std::uint64_t instance_ = 0;
  CheckpointBase base_;
  std::uint64_t previous_round_ = 0;  // of the newest checkpoint before `base_.newest` that was verified
  Journal* journal_ = nullptr;
  std::unique_ptr<Open> open_;
  CheckpointSchedule schedule_;
  CheckpointPace pace_;
  ChainFolder chains_;
  std::chrono::milliseconds may_stall_{0};  // left for the round, to wait for files
  std::vector<Request> waiting_;            // saves and loads of this rank's callers
  CheckpointCounters counters_;
  std::optional<Worker> worker_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_CHECKPOINTING_H_
