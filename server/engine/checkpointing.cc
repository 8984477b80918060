#include "server/engine/checkpointing.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "server/durability/compaction.h"
#include "server/engine/gathered_manifest.h"
#include "server/engine/operations/checkpoint_requests.h"

namespace slotwise {
namespace {

constexpr std::size_t kMostWaiting = 16;

}  // namespace

// The checkpoint that is under way.
struct Checkpointing::Open {
  enum class Phase : std::uint8_t { kWriting, kPublishing, kVerifying };
  Phase phase = Phase::kWriting;
  Manifest manifest;  // has ranks' entries once they are gathered
  std::function<void(Result<SavedCheckpoint>)> done;
  // Snapshots with their shards, in the order of manifest.tables.
  std::vector<std::pair<const Shard*, ShardSnapshot*>> snapshots;
  std::vector<std::unique_ptr<Shard>> dropped;  // shards of dropped tables
  std::shared_ptr<CheckpointJob> job;
  std::size_t written = 0;  // ranks that reported kWritten
  bool failed = false;
  bool builds_on_damage = false;  // its parent's chain is damaged, if it is a delta
  Status why_not;                 // why a rank could not write
  CheckpointSchedule::Cut cut;
  std::size_t bytes = 0;  // of this rank's rows in the checkpoint

  auto Find(const Shard* shard) {
    return std::ranges::find_if(snapshots, [shard](const auto& open) { return open.first == shard; });
  }
};

Checkpointing::Checkpointing(Device& device, Collective& collective, Tables& tables,
                             std::function<void(Request)> submit, std::function<void()> nudge)
    : device_(device),
      collective_(collective),
      tables_(tables),
      submit_(std::move(submit)),
      nudge_(std::move(nudge)),
      pace_(device.SharesHostMemory()) {}

Checkpointing::~Checkpointing() {
  // After an error Stop was not called, and the worker may wait for rows that are never read.
  if (open_ && open_->job) open_->job->Cancel();
}

void Checkpointing::Use(const DurabilityOptions& options, std::uint64_t instance, const CheckpointBase& base,
                        Journal* journal) {
  options_ = options;
  folder_ = options.folder + "/checkpoints";
  instance_ = instance;
  base_ = base;
  previous_round_ = base.newest_round;
  journal_ = journal;
  counters_.Begin({.bytes = base.newest_bytes, .rows = base.newest_rows},
                  std::chrono::steady_clock::now() - base.age);
  worker_.emplace(*options_.threads);
  schedule_.Begin(options_, base.age);
  if (Value(collective_.rank()) == 0) chains_.WorkHere(*options_.threads);
}

Status Checkpointing::KeepsCheckpoints() const {
  if (worker_) return {};
  return FailedPrecondition("the server keeps nothing: it was started without a data folder (--data)")
      .Because(Reason::kNoDataFolder);
}

void Checkpointing::Await(Request request) {
  if (waiting_.size() < kMostWaiting) return waiting_.push_back(std::move(request));
  request.Refuse(ResourceExhausted("checkpoint " + open_->manifest.id + " is being written, and " +
                                   std::to_string(kMostWaiting) + " requests wait for that already"));
}

Status Checkpointing::KeepForLoad(std::uint64_t round, const std::string& loaded) const {
  if (Value(collective_.rank()) != 0) return {};
  return checkpoints().KeepForLoad(loaded, base_.newest ? base_.newest->id : "", IdOf(round));
}

void Checkpointing::ForgetEarlierLoads(std::uint64_t round, const std::string& loaded) const {
  if (Value(collective_.rank()) != 0) return;
  if (const Status forgotten = checkpoints().ForgetEarlierLoads(loaded, IdOf(round)); !forgotten.ok())
    spdlog::error("checkpoints that earlier loads kept stay: {}", forgotten.message());
}

void Checkpointing::SaveLoaded(std::uint64_t round, Done done) {
  BeginWithBase();
  base_.loaded_round = round;
  schedule_.NoteChange(round);
  Save(round, false, DataType::kFloat32, std::move(done));
}

void Checkpointing::BeginWithBase() {
  base_.newest.reset();
  base_.links = 0;
  chains_.NoteNewChain();
}

void Checkpointing::Save(std::uint64_t round, bool asked_delta, DataType value_type, Done done) {
  schedule_.NoteRound();
  pace_.NoteOwnRound();
  const auto refuse = [&](const Status& why) {
    if (done) done(why);
  };
  if (Status keeps = KeepsCheckpoints(); !keeps.ok()) return refuse(keeps);
  counters_.NoteBegun(std::chrono::steady_clock::now());
  const bool promises = options_.mode != DurabilityMode::kNone && !options_.rounded_checkpoints;
  if (promises && Rounds(value_type)) {
    counters_.CountFailed();
    return refuse(FailedPrecondition(
        "a restart would take rounded rows for the acknowledged ones, and the server promises "
        "more than that: durability.rounded_checkpoints allows it"));
  }
  const CheckpointSchedule::Cut cut = schedule_.BeginNow();
  bool delta = asked_delta && base_.newest && base_.links <= options_.max_deltas;
  auto open = std::make_unique<Open>();
  Status begun = Begin(round, delta, value_type, *open);
  if (begun.code() == StatusCode::kFailedPrecondition && delta) {  // on all ranks: a table lost track
    delta = false;
    open = std::make_unique<Open>();
    begun = Begin(round, delta, value_type, *open);
  }
  if (!begun.ok()) {
    counters_.CountFailed();
    return refuse(begun);
  }
  open_ = std::move(open);
  open_->done = std::move(done);
  open_->cut = cut;
  if (journal_ != nullptr) journal_->BeginSegment(round + 1);
  worker_->Post([this, job = open_->job] {
    for (;;) {
      const CheckpointJob::Progress progress = job->Step();
      if (progress == CheckpointJob::Progress::kEnded) break;
      if (progress == CheckpointJob::Progress::kWaits) job->Wait();
    }
    const Status ended = job->result()->status();
    if (!ended.ok() && ended.code() != StatusCode::kCancelled)
      spdlog::error("a checkpoint could not be written: {}", ended.message());
    Tell(CheckpointEvent::kWritten, !ended.ok());
  });
}

bool Checkpointing::Rounds(DataType value_type) const {
  bool rounds = false;
  tables_.ForEach([&](const Table& table) {
    const TableOptions& options = table.info.options;
    if (SavedAs(value_type, options) != options.row_dtype) rounds = true;
  });
  return rounds;
}

Status Checkpointing::Begin(std::uint64_t round, bool delta, DataType value_type, Open& open) {
  Manifest& manifest = open.manifest;
  manifest.id = IdOf(round);
  if (delta) manifest.parent = base_.newest;
  manifest.created = options_.unix_time();
  manifest.server_version = options_.server_version;
  manifest.data_lineage = base_.lineage;
  manifest.instance = instance_;
  manifest.ranks = static_cast<std::uint32_t>(collective_.size());
  manifest.round = round;
  manifest.next_table_id = tables_.next_id();
  manifest.ledger_epoch = tables_.epoch();
  CheckpointJobOptions job{.files = options_.files,
                           .folder = folder_,
                           .id = manifest.id,
                           .rank = static_cast<std::uint32_t>(Value(collective_.rank())),
                           .delta = delta,
                           .value_type = value_type,
                           .ledger = {},
                           .threads = options_.threads,
                           .buffer_bytes = options_.checkpoint_buffer_bytes};
  if (device_.SharesHostMemory()) {  // an engine that is busy reads little at a time
    job.buffers = 16;
    job.buffer_bytes = std::min(job.buffer_bytes, std::size_t{256} << 10);
  }
  if (Value(collective_.rank()) == 0) job.ledger = tables_.ledger().Save();

  std::vector<Table*> tables;
  tables_.ForEach([&](Table& table) { tables.push_back(&table); });
  std::uint64_t all_bytes = 1;
  for (const Table* table : tables) all_bytes += table->shard->Usage().bytes;
  std::vector<SnapshotOfTable> snapshots;
  Status mine;
  for (Table* const table : tables) {
    const double share = static_cast<double>(table->shard->Usage().bytes) / static_cast<double>(all_bytes);
    auto begun =
        table->shard->BeginSnapshot({.changed_only = delta,
                                     .remember = true,
                                     .max_copy_on_write_bytes = static_cast<std::size_t>(
                                         static_cast<double>(options_.max_copy_on_write_bytes) * share)});
    if (!begun.ok()) {
      mine = begun.status();
      break;
    }
    TableEntry entry;
    entry.id = table->info.id;
    entry.options = table->info.options;
    entry.made = table->made;
    entry.generation = table->generation;
    entry.steps = table->steps;
    entry.learning_rate = table->learning_rate;
    entry.expiry = table->expiry;
    entry.owners = EvenBucketMap(collective_.size());
    entry.value_type = SavedAs(value_type, entry.options);
    manifest.tables.push_back(std::move(entry));
    const TableOptions& options = table->info.options;
    open.bytes += begun->info.keys.size() * RecordFloats(options) * sizeof(float);
    open.snapshots.emplace_back(table->shard.get(), begun->snapshot);
    snapshots.push_back({table->info.id, table->info.options, begun->snapshot, std::move(begun->info)});
  }
  if (mine.ok()) {
    try {
      open.job = std::make_shared<CheckpointJob>(device_, std::move(job), std::move(snapshots), nudge_);
    } catch (const std::bad_alloc&) {
      mine = ResourceExhausted("no memory for a checkpoint's buffers").Because(Reason::kNoMemory);
    }
  }
  // If a table lost track of its changes on some rank, the checkpoint is a base on all ranks.
  enum : std::uint64_t { kFine, kNoMemory, kLostTrack };
  const std::uint64_t state = mine.ok()                                                 ? kFine
                              : mine.code() == StatusCode::kFailedPrecondition && delta ? kLostTrack
                                                                                        : kNoMemory;
  const auto states = AllGatherValues(collective_, state);
  if (std::ranges::all_of(states, [](std::uint64_t s) { return s == kFine; })) return {};
  for (const auto& [shard, snapshot] : open.snapshots) snapshot->End(false);
  const auto no_memory = std::ranges::find(states, std::uint64_t{kNoMemory});
  if (no_memory == states.end()) return FailedPrecondition("changes are not known");
  if (!mine.ok() && state == kNoMemory) return mine;
  return ResourceExhausted("rank " + std::to_string(no_memory - states.begin()) +
                           " has no memory for a checkpoint")
      .Because(Reason::kNoMemory);
}

void Checkpointing::OnEvent(CheckpointEvent event, bool failed) {
  pace_.NoteOwnRound();
  if (event == CheckpointEvent::kCompacted) {
    base_.links -= chains_.NoteFolded(failed);
    return;
  }
  if (event == CheckpointEvent::kDamaged) {
    if (!chains_.folds_newest()) return;  // a base was made since
    if (open_) {
      open_->builds_on_damage = true;
    } else {
      BeginAnew(base_.newest->id);
    }
    return;
  }
  if (!open_) return;  // the checkpoint was given up
  switch (event) {
    case CheckpointEvent::kWritten:
      ++open_->written;
      if (failed && !open_->failed) {
        open_->failed = true;
        open_->job->Cancel();
      }
      if (open_->written == static_cast<std::size_t>(collective_.size())) Publish();
      return;
    case CheckpointEvent::kPublished: {
      if (failed) {
        // The code is not UNAVAILABLE, after which clients would try again: the disk is full, or broken.
        const Status& why = open_->why_not;
        return Fail({why.ok() ? StatusCode::kInternal : why.code(),
                     "checkpoint " + open_->manifest.id +
                         " could not be written: " + (why.ok() ? "rank 0's log says why" : why.message())});
      }
      EndSnapshots(true);
      const Manifest& manifest = open_->manifest;
      previous_round_ = base_.newest_round;
      base_.newest = manifest.name();
      base_.newest_round = manifest.round;
      base_.links = manifest.is_delta() ? base_.links + 1 : 1;
      if (!manifest.is_delta()) chains_.NoteNewChain();
      schedule_.NotePublished(open_->cut);
      counters_.CountWritten({.bytes = manifest.Bytes(), .rows = manifest.Rows()},
                             std::chrono::steady_clock::now());
      if (open_->done) {
        std::exchange(open_->done, nullptr)(SavedCheckpoint{.id = manifest.id,
                                                            .delta = manifest.is_delta(),
                                                            .round = manifest.round,
                                                            .rows = manifest.Rows(),
                                                            .bytes = manifest.Bytes()});
      }
      open_->phase = Open::Phase::kVerifying;
      if (Value(collective_.rank()) != 0) return;
      // A chain that is being folded is still read, and the journal may still name a checkpoint that was
      // loaded.
      worker_->Post(
          [this, id = manifest.id,
           removes = !chains_.busy() && (journal_ == nullptr || previous_round_ >= base_.loaded_round)] {
            const Checkpoints checkpoints(*options_.files, folder_);
            Status verified = checkpoints.Verify(id);
            if (verified.ok()) verified = checkpoints.CheckChain(id);
            if (!verified.ok()) {
              spdlog::error("checkpoint {} cannot be restored, so the next one is a base: {}", id,
                            verified.message());
            } else if (removes) {
              RemoveOldCheckpoints();
            }
            Tell(CheckpointEvent::kVerified, !verified.ok());
          });
      return;
    }
    case CheckpointEvent::kVerified:
      if (failed || (open_->builds_on_damage && open_->manifest.is_delta())) {
        counters_.CountUnreadable();
        BeginAnew(open_->manifest.id);
      } else {
        schedule_.NoteVerified();
        RemoveOldSegments();
      }
      Close();
      FoldLongChain();
      return;
    case CheckpointEvent::kCompacted:
    case CheckpointEvent::kDamaged:
      return;
  }
}

void Checkpointing::FoldLongChain() {
  if (!base_.newest) return;
  chains_.FoldIfLong(base_.links, options_.max_deltas, [this, tip = base_.newest->id] {
    const auto chain = Checkpoints(*options_.files, folder_).ChainOf(tip);
    Status folded = chain.status();
    if (folded.ok()) {
      folded = Compact(*options_.files, folder_, *chain,
                       {.id = tip + "-folded", .server_version = options_.server_version})
                   .status();
    }
    if (!folded.ok())
      spdlog::error("checkpoint {} and its deltas stay as they are: {}", tip, folded.message());
    if (folded.code() == StatusCode::kFailedPrecondition) Tell(CheckpointEvent::kDamaged, true);
    Tell(CheckpointEvent::kCompacted, !folded.ok());
  });
}

// Runs after the last rank's kWritten: no rank's worker uses its job any more.
void Checkpointing::Publish() {
  Result<Manifest> manifest = GatherManifest(collective_, open_->manifest, *open_->job->result());
  if (manifest.ok()) open_->manifest = *manifest;
  open_->why_not = manifest.status();
  open_->phase = Open::Phase::kPublishing;
  if (Value(collective_.rank()) != 0) return;
  worker_->Post([this, result = manifest.status(), whole = open_->manifest]() mutable {
    Status published = result;
    if (published.ok()) published = PublishIfOurs(whole);
    if (!published.ok()) {
      spdlog::error("checkpoint {} could not be written: {}", whole.id, published.message());
      const Status removed = options_.files->RemoveFolder(PartialFolder(folder_, whole.id));
      if (!removed.ok()) spdlog::error("{}", removed.message());
    }
    Tell(CheckpointEvent::kPublished, !published.ok());
  });
}

Status Checkpointing::PublishIfOurs(Manifest& manifest) const {
  if (Status ours = options_.still_ours ? options_.still_ours() : Status(); !ours.ok()) {
    if (options_.on_failure) options_.on_failure(ours.message());
    return ours;
  }
  return PublishCheckpoint(*options_.files, folder_, manifest);
}

void Checkpointing::EndSnapshots(bool kept) {
  open_->job.reset();  // its stream is done
  for (const auto& [shard, snapshot] : open_->snapshots) snapshot->End(kept);
  open_->snapshots.clear();
  open_->dropped.clear();
}

void Checkpointing::Fail(const Status& why) {
  counters_.CountFailed();
  EndSnapshots(false);
  if (open_->done) std::exchange(open_->done, nullptr)(why);
  Close();
}

void Checkpointing::BeginAnew(const std::string& lost) {
  schedule_.NoteLost(lost);
  base_.newest.reset();  // there is no newer one: a checkpoint waits until the last one was verified
  // Recovery needs the journal from that round on, until the next checkpoint was verified.
  base_.newest_round = previous_round_;
  base_.links = 0;
  chains_.NoteNewChain();
}

void Checkpointing::Close() {
  counters_.NoteEnded();
  open_.reset();
  for (Request& request : std::exchange(waiting_, {})) submit_(std::move(request));
}

void Checkpointing::Tell(CheckpointEvent event, bool failed) {
  submit_(
      CheckpointEventRequest{.event = event, .failed = failed, .done = [](const Status&) {}, .caller = {}});
}

void Checkpointing::RemoveOldSegments() {
  if (journal_ == nullptr) return;
  // Recovery may have to fall back on the checkpoint before this one.
  if (const Status removed = journal_->RemoveSegmentsBefore(previous_round_); !removed.ok())
    spdlog::error("segments of the journal that are not needed any more stay: {}", removed.message());
}

void Checkpointing::RemoveOldCheckpoints() const {
  const auto removed = Checkpoints(*options_.files, folder_).RemoveOld(options_.keep);
  if (!removed.ok()) return spdlog::error("old checkpoints stay: {}", removed.status().message());
  for (const std::string& id : *removed) spdlog::info("checkpoint {} was removed: newer ones are kept", id);
}

void Checkpointing::OnDecision(std::uint64_t now_ms, std::uint64_t changed) {
  may_stall_ = options_.longest_stall;
  schedule_.OnDecision(now_ms, changed, open_ != nullptr);
  counters_.NoteChanged(schedule_.something_changed());
}

std::optional<CheckpointStats> Checkpointing::Stats() const {
  if (!counters_.on()) return std::nullopt;
  return counters_.Read(std::chrono::steady_clock::now());
}

Checkpointing::Next Checkpointing::Advance(std::uint64_t now_ms, bool idle) {
  if (!worker_) return Next::kNothing;
  pace_.NoteTurn(now_ms, idle);
  if (open_) return ReadSome();
  if (Value(collective_.rank()) != 0 || !schedule_.AsksAt(now_ms)) return Next::kNothing;
  submit_(SaveCheckpointRequest{.delta = true,
                                .done =
                                    [this](const Result<SavedCheckpoint>& saved) {
                                      schedule_.NoteAnswered();
                                      if (!saved.ok())
                                        spdlog::error("no checkpoint was made: {}", saved.status().message());
                                    },
                                .caller = {}});
  return Next::kNothing;
}

Checkpointing::Next Checkpointing::ReadSome() {
  if (!open_->job || open_->failed) return Next::kNothing;
  const std::size_t most = pace_.MayRead(open_->bytes, schedule_.every());
  const std::size_t read = pace_.pauses() ? 0 : open_->job->Advance(most);
  pace_.NoteRead(read);
  if (open_->job->rows_are_on_the_way()) return Next::kSoon;
  if (!pace_.on_processor() || (read == 0 && !pace_.pauses())) return Next::kNothing;
  return pace_.at_rest() ? Next::kSoon : Next::kInATick;
}

void Checkpointing::BeforeChange(const Shard& shard, FoundBatch& batch) {
  if (!open_ || !open_->job) return;
  const auto found = open_->Find(&shard);
  if (found == open_->snapshots.end()) return;
  while (batch.CopyBeforeWrite() > 0) {
    if (open_->job->ReadNow(*found->second, may_stall_)) continue;
    // The job has given up, and reads no more. Its report will tell the ranks.
    found->second->End(false);
    open_->snapshots.erase(found);
    return;
  }
}

void Checkpointing::Keep(std::unique_ptr<Shard> shard) {
  if (open_ && open_->Find(shard.get()) != open_->snapshots.end()) open_->dropped.push_back(std::move(shard));
}

void Checkpointing::Stop(std::uint64_t rounds) {
  if (!worker_) return;
  if (open_ && open_->job) open_->job->Cancel();
  worker_.reset();
  chains_.Stop();
  if (open_) {
    if (open_->job) EndSnapshots(false);
    if (open_->done) open_->done(Unavailable("the server is stopping").Because(Reason::kStopping));
    open_.reset();
  }
  for (Request& request : std::exchange(waiting_, {}))
    request.Refuse(Unavailable("the server is stopping").Because(Reason::kStopping));
  const bool by_itself = options_.mode == DurabilityMode::kInterval ||
                         (options_.mode == DurabilityMode::kNone && options_.checkpoint_every.count() > 0);
  if (by_itself && schedule_.something_changed()) SaveLast(rounds + 1);
}

// There are no further rounds, so the ranks need no events.
void Checkpointing::SaveLast(std::uint64_t round) {
  open_ = std::make_unique<Open>();
  Status saved = Begin(round, false, DataType::kFloat32, *open_);
  if (saved.ok()) {
    CheckpointJob& job = *open_->job;
    while (job.Step() != CheckpointJob::Progress::kEnded) job.AdvanceAndWait(std::size_t{64} << 20);
    Result<Manifest> manifest = GatherManifest(collective_, open_->manifest, *open_->job->result());
    saved = manifest.status();
    if (saved.ok() && Value(collective_.rank()) == 0) saved = PublishIfOurs(*manifest);
    EndSnapshots(saved.ok());
  }
  if (!saved.ok()) {
    spdlog::error("the last checkpoint could not be written: {}", saved.message());
  } else if (Value(collective_.rank()) == 0) {
    spdlog::info("checkpoint {} has all that was acknowledged", open_->manifest.id);
  }
  open_.reset();
}

}  // namespace slotwise
