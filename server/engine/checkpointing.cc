#include "server/engine/checkpointing.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <new>
#include <span>
#include <utility>

#include "server/durability/compaction.h"
#include "server/durability/hex.h"

namespace slotwise {
namespace {

std::string IdOf(std::uint64_t round, std::uint64_t incarnation) {
  std::string number = std::to_string(round);
  number.insert(0, 12 - std::min<std::size_t>(12, number.size()), '0');
  return number + "-" + Hex(incarnation);
}

// Collective. Returns every rank's text, in rank order.
std::vector<std::string> GatherTexts(Collective& collective, const std::string& mine) {
  const auto sizes = AllGatherValues(collective, std::uint64_t{mine.size()});
  const std::size_t longest = std::ranges::max(sizes);
  std::string padded = mine;
  padded.resize(longest);
  std::vector<char> all(longest * sizes.size());
  if (longest > 0)
    collective.AllGather(std::as_bytes(std::span(padded)), std::as_writable_bytes(std::span(all)));
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < sizes.size(); ++rank)
    texts.emplace_back(&all[rank * longest], sizes[rank]);
  return texts;
}

// Texts, one behind the other, each with its length.
void Add(std::string& texts, const std::string& text) { texts += std::to_string(text.size()) + "\n" + text; }

std::string Take(std::string_view& texts) {
  std::size_t size = 0;
  const auto end = std::from_chars(texts.data(), texts.data() + texts.size(), size).ptr;
  texts.remove_prefix(static_cast<std::size_t>(end - texts.data()) + 1);
  std::string text(texts.substr(0, size));
  texts.remove_prefix(size);
  return text;
}

std::uint64_t BytesOf(const Manifest& manifest) {
  std::uint64_t bytes = manifest.ledger.bytes;
  for (const TableEntry& table : manifest.tables) {
    for (const RankEntry& rank : table.ranks) {
      for (const FileEntry& file : rank.files) bytes += file.bytes;
    }
  }
  return bytes;
}

std::uint64_t RowsOf(const Manifest& manifest) {
  std::uint64_t rows = 0;
  for (const TableEntry& table : manifest.tables) {
    for (const RankEntry& rank : table.ranks) rows += rank.rows;
  }
  return rows;
}

}  // namespace

// The checkpoint that is under way.
struct Checkpointing::Open {
  enum class Phase : std::uint8_t { kWriting, kPublishing, kVerifying };
  Phase phase = Phase::kWriting;
  Manifest manifest;  // without ranks' entries until they were gathered
  std::function<void(Result<SavedCheckpoint>)> done;
  std::vector<Shard*> shards;                   // with open snapshots, in the order of manifest.tables
  std::vector<std::unique_ptr<Shard>> dropped;  // of tables that are gone
  std::shared_ptr<CheckpointJob> job;
  std::size_t written = 0;  // ranks
  bool failed = false;
  Status why_not;  // what a rank could not write
  std::uint64_t cut_ms = 0;
  std::uint64_t changed = 0;
};

Checkpointing::Checkpointing(Device& device, Collective& collective, Tables& tables,
                             std::function<void(Request)> submit, std::function<void()> nudge)
    : device_(device),
      collective_(collective),
      tables_(tables),
      submit_(std::move(submit)),
      nudge_(std::move(nudge)) {}

Checkpointing::~Checkpointing() {
  // After an error nobody called Stop, and the worker may wait for rows that nobody will read.
  if (open_ && open_->job) open_->job->Cancel();
}

void Checkpointing::Use(const DurabilityOptions& options, std::uint64_t incarnation,
                        const CheckpointBase& base, Journal* journal) {
  options_ = options;
  folder_ = options.folder + "/checkpoints";
  incarnation_ = incarnation;
  base_ = base;
  previous_round_ = base.newest_round;
  journal_ = journal;
  worker_.emplace(*options_.threads);
  if (Value(collective_.rank()) == 0) folder_of_chains_.emplace(*options_.threads);
}

void Checkpointing::Save(const Round& round, std::function<void(Result<SavedCheckpoint>)> done) {
  const auto refuse = [&](const Status& why) {
    asked_ = false;
    if (done) done(why);
  };
  if (!worker_) {
    return refuse(
        FailedPrecondition("the server keeps nothing: it was started without a data folder (--data)"));
  }
  if (open_) return refuse(FailedPrecondition("checkpoint " + open_->manifest.id + " is being written"));
  bool delta = round.delta && base_.newest && base_.links <= options_.max_deltas;
  auto open = std::make_unique<Open>();
  Status begun = Begin(round.number, delta, round.value_type, *open);
  if (begun.code() == StatusCode::kFailedPrecondition && delta) {  // on all ranks: some table lost track
    delta = false;
    open = std::make_unique<Open>();
    begun = Begin(round.number, delta, round.value_type, *open);
  }
  if (!begun.ok()) return refuse(begun);
  open_ = std::move(open);
  open_->done = std::move(done);
  open_->cut_ms = cut_ms_ = now_ms_;
  open_->changed = changed_;
  asked_ = false;
  if (journal_ != nullptr) journal_->BeginSegment(round.number + 1);
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

Status Checkpointing::Begin(std::uint64_t round, bool delta, DataType value_type, Open& open) {
  Manifest& manifest = open.manifest;
  manifest.id = IdOf(round, incarnation_);
  if (delta) manifest.parent = base_.newest;
  manifest.server_version = options_.server_version;
  manifest.data_lineage = base_.lineage;
  manifest.incarnation = incarnation_;
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
    auto info = table->shard->BeginSnapshot({.changed_only = delta,
                                             .remember = true,
                                             .max_preimage_bytes = static_cast<std::size_t>(
                                                 static_cast<double>(options_.max_preimage_bytes) * share)});
    if (!info.ok()) {
      mine = info.status();
      break;
    }
    TableEntry entry;
    entry.id = table->info.id;
    entry.options = table->info.options;
    entry.lineage = table->lineage;
    entry.steps = table->steps;
    entry.learning_rate = table->learning_rate;
    entry.owners = EvenBucketMap(collective_.size());
    entry.value_type = value_type;
    manifest.tables.push_back(std::move(entry));
    open.shards.push_back(table->shard.get());
    snapshots.push_back({table->info.id, table->info.options, table->shard.get(), std::move(*info)});
  }
  if (mine.ok()) {
    try {
      open.job = std::make_shared<CheckpointJob>(device_, std::move(job), std::move(snapshots), nudge_);
    } catch (const std::bad_alloc&) {
      mine = ResourceExhausted("no memory for a checkpoint's buffers");
    }
  }
  // A table that lost track on some rank makes the checkpoint a base on all.
  enum : std::uint64_t { kFine, kNoMemory, kLostTrack };
  const std::uint64_t state = mine.ok()                                                 ? kFine
                              : mine.code() == StatusCode::kFailedPrecondition && delta ? kLostTrack
                                                                                        : kNoMemory;
  const auto states = AllGatherValues(collective_, state);
  if (std::ranges::all_of(states, [](std::uint64_t s) { return s == kFine; })) return {};
  for (Shard* const shard : open.shards) shard->EndSnapshot(false);
  const auto no_memory = std::ranges::find(states, std::uint64_t{kNoMemory});
  if (no_memory == states.end()) return FailedPrecondition("changes are not known");
  if (!mine.ok() && state == kNoMemory) return mine;
  return ResourceExhausted("rank " + std::to_string(no_memory - states.begin()) +
                           " has no memory for a checkpoint");
}

void Checkpointing::OnEvent(const Round& round) {
  if (round.event == CheckpointEvent::kCompacted) {
    if (!round.failed) base_.links -= folding_ - 1;
    folding_ = 0;
    return;
  }
  if (!open_) return;  // it was given up
  switch (round.event) {
    case CheckpointEvent::kWritten:
      ++open_->written;
      if (round.failed && !open_->failed) {
        open_->failed = true;
        open_->job->Cancel();
      }
      if (open_->written == static_cast<std::size_t>(collective_.size())) Publish();
      return;
    case CheckpointEvent::kPublished: {
      if (round.failed) {
        // Not UNAVAILABLE, which clients would try again: the disk is full, or broken.
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
      durable_cut_ms_ = open_->cut_ms;
      durable_changed_ = open_->changed;
      if (open_->done) {
        std::exchange(open_->done, nullptr)(SavedCheckpoint{.id = manifest.id,
                                                            .delta = manifest.is_delta(),
                                                            .round = manifest.round,
                                                            .rows = RowsOf(manifest),
                                                            .bytes = BytesOf(manifest)});
      }
      open_->phase = Open::Phase::kVerifying;
      if (Value(collective_.rank()) != 0) return;
      worker_->Post([this, id = manifest.id] {
        const Status verified = Checkpoints(*options_.files, folder_).Verify(id);
        if (!verified.ok())
          spdlog::error("checkpoint {} is not what was written: {}", id, verified.message());
        Tell(CheckpointEvent::kVerified, !verified.ok());
      });
      return;
    }
    case CheckpointEvent::kVerified:
      if (!round.failed) RemoveWhatIsOld();
      open_.reset();
      FoldLongChain();
      return;
    case CheckpointEvent::kCompacted:
      return;
  }
}

// A chain is folded by its files when it is half as long as it may be, so that a base of all rows, which
// every rank would have to write, is seldom due.
void Checkpointing::FoldLongChain() {
  if (folding_ > 0 || base_.links < 2 || 2 * base_.links < options_.max_deltas) return;
  folding_ = base_.links;
  if (Value(collective_.rank()) != 0) return;
  folder_of_chains_->Post([this, tip = base_.newest->id] {
    const auto chain = Checkpoints(*options_.files, folder_).ChainOf(tip);
    Status folded = chain.status();
    if (folded.ok()) {
      folded = Compact(*options_.files, folder_, *chain,
                       {.id = tip + "-folded", .server_version = options_.server_version})
                   .status();
    }
    if (!folded.ok())
      spdlog::error("checkpoint {} and its deltas stay as they are: {}", tip, folded.message());
    Tell(CheckpointEvent::kCompacted, !folded.ok());
  });
}

// Behind the last rank's kWritten: no rank's worker uses its job any more.
void Checkpointing::Publish() {
  Result<Manifest> manifest = Gather();
  if (manifest.ok()) open_->manifest = *manifest;
  open_->why_not = manifest.status();
  open_->phase = Open::Phase::kPublishing;
  if (Value(collective_.rank()) != 0) return;
  worker_->Post([this, result = manifest.status(), whole = open_->manifest]() mutable {
    Status published = result;
    if (published.ok()) published = PublishCheckpoint(*options_.files, folder_, whole);
    if (!published.ok()) {
      spdlog::error("checkpoint {} could not be written: {}", whole.id, published.message());
      const Status removed = options_.files->RemoveFolder(PartialFolder(folder_, whole.id));
      if (!removed.ok()) spdlog::error("{}", removed.message());
    }
    Tell(CheckpointEvent::kPublished, !published.ok());
  });
}

Result<Manifest> Checkpointing::Gather() {
  const auto result = *open_->job->result();
  // y: written; g: given up, for another rank's sake; f: no space was left; n: not written.
  const StatusCode code = result.status().code();
  std::string mine(1, result.ok()                              ? 'y'
                      : code == StatusCode::kCancelled         ? 'g'
                      : code == StatusCode::kResourceExhausted ? 'f'
                                                               : 'n');
  if (result.ok()) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    Add(mine, std::to_string(std::chrono::duration_cast<std::chrono::seconds>(now).count()));
    RankEntry ledger;
    ledger.files = {result->ledger};
    Add(mine, SerializeRankEntry(ledger));
    for (const RankEntry& entry : result->tables) Add(mine, SerializeRankEntry(entry));
  } else {
    Add(mine, result.status().message());
  }
  const std::vector<std::string> texts = GatherTexts(collective_, mine);
  for (const std::string_view bad : {"fn", "g"}) {
    const auto why = std::ranges::find_if(
        texts, [&](const std::string& text) { return bad.find(text.front()) != std::string_view::npos; });
    if (why == texts.end()) continue;
    std::string_view text = std::string_view(*why).substr(1);
    return Status(why->front() == 'f' ? StatusCode::kResourceExhausted : StatusCode::kInternal,
                  "rank " + std::to_string(why - texts.begin()) + ": " + Take(text));
  }
  Manifest manifest = open_->manifest;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    std::string_view text = texts[rank];
    text.remove_prefix(1);
    const std::string first = Take(text);
    const auto ledger = ParseRankEntry(Take(text));
    if (!ledger.ok()) return ledger.status();
    if (rank == 0) {
      manifest.created = std::stoull(first);
      manifest.ledger = ledger->files.front();
    }
    for (TableEntry& table : manifest.tables) {
      auto entry = ParseRankEntry(Take(text));
      if (!entry.ok()) return entry.status();
      table.ranks.push_back(std::move(*entry));
    }
  }
  // Every rank knows the manifest's checksum, which a delta will name.
  if (const auto serialized = SerializeManifest(manifest); !serialized.ok()) return serialized.status();
  return manifest;
}

void Checkpointing::EndSnapshots(bool kept) {
  open_->job.reset();  // its stream is done
  for (Shard* const shard : open_->shards) shard->EndSnapshot(kept);
  open_->shards.clear();
  open_->dropped.clear();
}

void Checkpointing::Fail(const Status& why) {
  EndSnapshots(false);
  if (open_->done) std::exchange(open_->done, nullptr)(why);
  open_.reset();
}

void Checkpointing::Tell(CheckpointEvent event, bool failed) {
  submit_(
      CheckpointEventRequest{.event = event, .failed = failed, .done = [](const Status&) {}, .caller = {}});
}

void Checkpointing::RemoveWhatIsOld() {
  // Recovery may have to fall back on the checkpoint before this one.
  if (journal_ != nullptr) {
    if (const Status removed = journal_->RemoveSegmentsBefore(previous_round_); !removed.ok())
      spdlog::error("segments of the journal that are not needed any more stay: {}", removed.message());
  }
  // A chain that is being folded is still read.
  if (Value(collective_.rank()) != 0 || folding_ > 0) return;
  worker_->Post([this] {
    const auto removed = Checkpoints(*options_.files, folder_).RemoveOld(options_.keep);
    if (!removed.ok()) {
      spdlog::error("old checkpoints stay: {}", removed.status().message());
    } else {
      for (const std::string& id : *removed)
        spdlog::info("checkpoint {} was removed: newer ones are kept", id);
    }
  });
}

void Checkpointing::OnDecision(std::uint64_t now_ms, std::uint64_t changed) {
  now_ms_ = now_ms;
  changed_ = changed;
  // What is on disk is the state of now, if nothing has changed.
  if (!open_ && changed_ == durable_changed_) cut_ms_ = durable_cut_ms_ = now_ms;
}

bool Checkpointing::Advance(std::uint64_t now_ms, bool idle) {
  if (!worker_) return false;
  const std::uint64_t passed_ms = now_ms - std::exchange(advanced_ms_, now_ms);
  if (open_) {
    if (!open_->job || open_->failed) return false;
    // A processor collects about 4 MB of rows a millisecond. A device does it beside its work.
    constexpr std::size_t kBytesAMillisecond = std::size_t{400} << 10;
    constexpr std::size_t kMost = std::size_t{16} << 20;
    // So long a request that comes to an idle engine may have to wait.
    constexpr std::size_t kIdleProcessor = std::size_t{1} << 20;
    const bool processor = device_.SharesHostMemory();
    may_read_ = !processor ? kMost
                : idle     ? kIdleProcessor
                           : std::min<std::size_t>(kMost, may_read_ + passed_ms * kBytesAMillisecond);
    const std::size_t read = may_read_ > 0 ? open_->job->Advance(may_read_) : 0;
    may_read_ -= std::min(may_read_, read);
    return open_->job->rows_are_on_the_way() || (processor && idle && read > 0);
  }
  if (asked_ || Value(collective_.rank()) != 0) return false;
  auto every = std::chrono::milliseconds(options_.checkpoint_every);
  if (options_.mode == DurabilityMode::kInterval) every = std::chrono::milliseconds(options_.interval) / 2;
  if (every.count() == 0 || now_ms < cut_ms_ + static_cast<std::uint64_t>(every.count())) return false;
  if (changed_ == durable_changed_) return false;
  asked_ = true;
  submit_(SaveCheckpointRequest{.delta = true,
                                .done =
                                    [](const Result<SavedCheckpoint>& saved) {
                                      if (!saved.ok())
                                        spdlog::error("no checkpoint was made: {}", saved.status().message());
                                    },
                                .caller = {}});
  return false;
}

void Checkpointing::BeforeChange(Shard& shard) {
  if (!open_ || !open_->job || std::ranges::find(open_->shards, &shard) == open_->shards.end()) return;
  while (shard.SavePreimages() > 0) {
    if (open_->job->ReadNow(shard)) continue;
    // The job has given up, and reads no more. The ranks will hear of it.
    shard.EndSnapshot(false);
    std::erase(open_->shards, &shard);
    return;
  }
}

void Checkpointing::Keep(std::unique_ptr<Shard> shard) {
  if (open_ && std::ranges::find(open_->shards, shard.get()) != open_->shards.end())
    open_->dropped.push_back(std::move(shard));
}

Status Checkpointing::MayUpdate() const {
  if (options_.mode != DurabilityMode::kInterval || !worker_) return {};
  const auto limit = static_cast<std::uint64_t>(std::chrono::milliseconds(options_.interval).count());
  const std::uint64_t behind = now_ms_ - std::min(now_ms_, durable_cut_ms_);
  if (behind <= limit) return {};
  return Unavailable("the newest checkpoint on disk is of " + std::to_string(behind / 1000) +
                     " s ago, and durability.interval_s is " + std::to_string(limit / 1000) +
                     ": the disk is too slow, or full; updates go on when a newer one is there");
}

void Checkpointing::Stop(std::uint64_t rounds) {
  if (!worker_) return;
  if (open_ && open_->job) open_->job->Cancel();
  worker_.reset();
  folder_of_chains_.reset();
  if (open_) {
    if (open_->job) EndSnapshots(false);
    if (open_->done) open_->done(Unavailable("the server is stopping"));
    open_.reset();
  }
  const bool by_itself = options_.mode == DurabilityMode::kInterval ||
                         (options_.mode == DurabilityMode::kNone && options_.checkpoint_every.count() > 0);
  if (by_itself && changed_ != durable_changed_) SaveLast(rounds + 1);
}

// No round comes any more, so the ranks need no events.
void Checkpointing::SaveLast(std::uint64_t round) {
  open_ = std::make_unique<Open>();
  Status saved = Begin(round, false, DataType::kFloat32, *open_);
  if (saved.ok()) {
    CheckpointJob& job = *open_->job;
    while (job.Step() != CheckpointJob::Progress::kEnded) job.AdvanceAndWait(std::size_t{64} << 20);
    Result<Manifest> manifest = Gather();
    saved = manifest.status();
    if (saved.ok() && Value(collective_.rank()) == 0)
      saved = PublishCheckpoint(*options_.files, folder_, *manifest);
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
