// Checkpointing: checkpoints of a running server: when, of what, and who does what of it.
//
// A checkpoint is the state after one round, of all ranks and tables. In that round every rank begins
// snapshots of its shards and gives them to a job, which its worker writes while rounds go on
// (checkpoint_job.h). Ranks tell each other how far they are by rounds of their own, so all know the same:
//
//     round of SaveCheckpoint     every rank: snapshots begin; the journal begins a new segment
//     kWritten, of each rank      its files are on disk. Behind the last: ranks gather what they wrote, and
//                                 rank 0's worker writes the manifest; from then on the checkpoint exists
//     kPublished, of rank 0       every rank: snapshots end; the requests are answered
//     kVerified, of rank 0        all files were read back, all that it is a delta of is there, and
//                                 checkpoints that are not needed any more are gone: older segments of the
//                                 journal go
//
// A checkpoint that was asked for meanwhile waits until this one was verified. If what is on disk turns out
// not to be what was written, kVerified says so: the next checkpoint is a base, and is made at once. If a
// rank fails, its kWritten says so, the others give up, and rank 0 removes what there is. Beside all this,
// rank 0 folds a chain that has become long into a base (kCompacted); if that finds damage (kDamaged), the
// next checkpoint is a base too.
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

// What checkpoints go on from.
struct CheckpointBase {
  std::uint64_t lineage = 0;             // of the data folder
  std::optional<CheckpointName> newest;  // that the state was recovered from
  std::uint64_t newest_round = 0;
  std::uint64_t newest_bytes = 0;  // 0: there is none
  std::uint64_t newest_rows = 0;
  // How old its state is, as rank 0 says. Where there is none: for how long the folder has been in use.
  std::chrono::milliseconds age{0};
  std::size_t links = 0;           // of its chain
  std::uint64_t loaded_round = 0;  // the last one that loaded a checkpoint, if a journal has it
};

class Checkpointing {
 public:
  // `submit` takes a request to this rank's own engine, and `nudge` tells it that Advance has something to
  // do; the worker calls both. The other arguments outlive it.
  Checkpointing(Device& device, Collective& collective, Tables& tables, std::function<void(Request)> submit,
                std::function<void()> nudge);
  ~Checkpointing();

  // Lets there be checkpoints. The next one is due by the age of `base`, of any start. `journal` may be
  // null.
  void Use(const DurabilityOptions& options, std::uint64_t instance, const CheckpointBase& base,
           Journal* journal);

  // OK, or why there are no checkpoints.
  Status KeepsCheckpoints() const;
  Checkpoints checkpoints() const { return {*options_.files, folder_}; }
  std::uint64_t data_lineage() const { return base_.lineage; }
  Threads& threads() const { return *options_.threads; }

  // Whether a checkpoint is under way: to save or to load another one waits for that. The same on every rank.
  bool busy() const { return open_ != nullptr; }
  // Hands a request to save or load in again, once that may begin.
  void Await(Request request);

  // A round saves. `done` is this rank's, if the request came here. REQUIRES: not busy().
  using Done = std::function<void(Result<SavedCheckpoint>)>;
  void Save(std::uint64_t round, bool delta, DataType value_type, Done done);
  // A round loads checkpoint `loaded`, and will save it: the loaded one, and the newest of before, stay until
  // another is loaded. Rank 0 looks after that.
  Status KeepForLoad(std::uint64_t round, const std::string& loaded) const;
  void ForgetEarlierLoads(std::uint64_t round, const std::string& loaded) const;
  // A round has replaced tables. Saves all, which `done` hears. REQUIRES: not busy().
  void SaveLoaded(std::uint64_t round, Done done);
  // A rank has told of an event, which may be that something failed.
  void OnEvent(CheckpointEvent event, bool failed);

  // Before every decision: the time that the ranks agree on, and the last round that changed state.
  void OnDecision(std::uint64_t now_ms, std::uint64_t changed);
  // Reads some rows for the checkpoint that is under way, and asks for one if it is time: `now_ms` is this
  // rank's clock. On a CPU, an engine that was busy within the last 25 ms with more than checkpoints, as one
  // is that waits for its trainer's next step, gives it little of its time, and one that is at rest a quarter
  // of a millisecond. Does not wait.
  enum class Next : std::uint8_t {
    kNothing,  // the next call is due when something has changed
    kSoon,     // rows are on their way, or more may be read
    kInATick,  // more may be read in some milliseconds
  };
  Next Advance(std::uint64_t now_ms, bool idle);

  // Before a batch of a shard changes rows: makes sure that no checkpoint needs them any more. Reads of the
  // checkpoint what it has to. If a round would wait for its files for longer than
  // DurabilityOptions::longest_stall, gives it up.
  void BeforeChange(const Shard& shard, FoundBatch& batch);
  // A table was dropped: a checkpoint may still have to read its rows.
  void Keep(std::unique_ptr<Shard> shard);

  // OK, or why updates are refused: the disk does not keep up with `durability.interval_s`, or has lost what
  // was written. The same on all ranks.
  Status MayUpdate() const { return schedule_.MayUpdate(); }

  // Any thread. None: there is no data folder.
  std::optional<CheckpointStats> Stats() const;

  // The engine ends, after so many rounds: gives up what is under way. What no journal has goes into a last
  // checkpoint, if checkpoints are made by themselves.
  void Stop(std::uint64_t rounds);

 private:
  struct Open;

  std::string IdOf(std::uint64_t round) const {
    return CheckpointId({.round = round, .instance = instance_});
  }
  Status Begin(std::uint64_t round, bool delta, DataType value_type, Open& open);
  void SaveLast(std::uint64_t round);
  void FoldLongChain();
  void EndSnapshots(bool kept);
  Next ReadSome();
  void Publish();
  // Rank 0, any thread.
  Status PublishIfOurs(Manifest& manifest) const;
  void Fail(const Status& why);
  // The newest checkpoint cannot be restored: what comes next builds on nothing.
  void BeginAnew(const std::string& lost);
  void Close();  // what is under way; what waits for it comes again
  void Tell(CheckpointEvent event, bool failed);
  void RemoveOldSegments();
  void RemoveOldCheckpoints() const;  // the worker's

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
  std::chrono::milliseconds may_stall_{0};  // the round, for the checkpoint's files
  std::vector<Request> waiting_;            // of this rank's callers
  CheckpointCounters counters_;
  std::optional<Worker> worker_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_CHECKPOINTING_H_
