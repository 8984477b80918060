#include "server/engine/recovery.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <optional>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "server/durability/hex.h"
#include "server/durability/journal_format.h"
#include "server/durability/journal_reader.h"
#include "server/durability/whole_file.h"
#include "server/engine/checkpoint_loader.h"
#include "server/engine/operations/replay.h"
#include "server/engine/operations/replay_context.h"

namespace slotwise {
namespace {

constexpr std::string_view kLineageFile = "lineage";

std::uint64_t Draw() {
  std::random_device random;
  return std::uint64_t{random()} << 32 | random() | 1;
}

std::string ParentOf(const std::string& folder) {
  const std::size_t slash = folder.find_last_of('/', folder.find_last_not_of('/'));
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : folder.substr(0, slash);
}

// Returns whether a journal was here of which no file is left. A server always keeps its newest file.
bool JournalIsEmptied(FileSystem& files, const std::string& folder, const std::vector<std::string>& names) {
  bool has_folder = false;
  for (const std::string& name : names) {
    if (!ParseRankFolder(name)) continue;
    has_folder = true;
    std::string path = folder;
    const auto segments = files.List(path.append("/").append(name));
    if (!segments.ok()) return false;  // the journal's reader says why
    for (const std::string& segment : *segments) {
      if (ParseSegmentName(segment)) return false;
    }
  }
  return has_folder;
}

// Warns of missing files. The server still goes on from the remaining files, because a restored backup or a
// copy looks the same. The content of the missing files is unknown.
void WarnOfWhatIsGone(FileSystem& files, const std::string& folder) {
  for (const std::string& name : {folder + "/journal", folder + "/checkpoints"}) {
    const auto names = files.List(name);
    const bool gone = names.status().code() == StatusCode::kNotFound;
    if (!gone && !(names.ok() && JournalIsEmptied(files, name, *names))) continue;
    spdlog::warn(
        "{} was used before, and {} {}: if it is no restored backup, and its first start was not broken off, "
        "somebody has removed that, and the updates that only it had are lost",
        folder, name, gone ? "is not there" : "has no files");
  }
}

struct DataFolder {
  std::uint64_t lineage = 0;                // of the folder's state
  std::optional<std::uint64_t> since = {};  // first use, in seconds since 1970, if known
};

// Returns how long ago `then` was; 0 if a clock that was set back, or another host's, makes it the future.
std::chrono::milliseconds AgeOf(std::uint64_t then, std::uint64_t now) {
  constexpr std::chrono::milliseconds kMost = std::chrono::hours(24 * 365 * 100);  // as nanoseconds they fit
  if (then >= now) return std::chrono::milliseconds(0);
  if (now - then >= static_cast<std::uint64_t>(kMost.count()) / 1000) return kMost;
  return std::chrono::seconds(now - then);
}

// Opens the folder, or creates it.
Result<DataFolder> OpenFolder(FileSystem& files, const std::string& folder) {
  if (Status made = files.MakeFolder(folder); !made.ok()) return made;
  if (Status synced = files.SyncFolder(ParentOf(folder)); !synced.ok()) return synced;
  const std::string path = folder + "/" + std::string(kLineageFile);
  const auto file = files.Open(path);
  if (file.ok()) {
    std::array<char, 17> text{};
    std::uint64_t lineage = 0;
    if ((*file)->size() == text.size()) {
      if (Status read = (*file)->ReadAt(0, std::as_writable_bytes(std::span(text))); !read.ok()) return read;
    }
    const bool is_hex = ParseHex(std::string(text.data(), 16), lineage);
    if (is_hex && text[16] == '\n' && lineage != 0) {
      WarnOfWhatIsGone(files, folder);
      return DataFolder{.lineage = lineage, .since = (*file)->changed_at()};
    }
    return DataLoss(path + " is not a lineage, which is 16 hexadecimal digits and a newline");
  }
  if (file.status().code() != StatusCode::kNotFound) return file.status();
  // A folder with state has a lineage file too, because that file is written first.
  for (const char* const state : {"journal", "checkpoints"}) {
    const auto names = files.List(folder + "/" + state);
    if (names.ok() && !names->empty()) {
      return DataLoss(folder + " has a folder " + state + ", which is not empty, and no file " +
                      std::string(kLineageFile));
    }
  }
  const std::uint64_t lineage = Draw();
  if (Status written = WriteWholeFile(files, folder, kLineageFile, Hex(lineage) + "\n"); !written.ok())
    return written;
  return DataFolder{.lineage = lineage};
}

}  // namespace

class Recovery::Impl {
 public:
  Impl(DurabilityOptions options, const OperationTable& operations, Device& device, Collective& collective,
       Tables& tables, TableMaker& maker)
      : options_(std::move(options)),
        operations_(operations),
        files_(*options_.files),
        collective_(collective),
        tables_(tables),
        maker_(maker),
        loader_(Checkpoints(files_, CheckpointFolder()), *options_.threads, device, collective, maker,
                tables),
        replay_(device, tables, maker, loader_) {}

  Result<Recovered> Run() {
    if (Status opened = Agree(Open()); !opened.ok()) return opened;
    LearnOfEarlierStarts();
    if (Status loaded = LoadNewest(); !loaded.ok()) return loaded;
    AgreeOnAge();
    Status tracked;  // the journal's changes are not in the checkpoint
    tables_.ForEach([&](Table& table) {
      if (tracked.ok()) tracked = table.shard->TrackChanges(options_.max_erased);
    });
    if (Status all = Agree(tracked); !all.ok()) return all;
    maker_.TrackChanges(options_.max_erased);
    if (Status replayed = Agree(ReplayJournals()); !replayed.ok()) return replayed;
    if (Status alike = CompareEvictions(); !alike.ok()) return alike;
    if (Status all = Agree(IsNewest()); !all.ok()) return all;
    recovered_.tables = tables_.All().size();
    return recovered_;
  }

  Result<std::unique_ptr<Journal>> StartJournal(std::uint64_t instance, std::function<void()> on_durable) {
    JournalOptions options;
    options.folder = JournalFolder();
    options.rank = static_cast<std::uint32_t>(Value(collective_.rank()));
    options.ranks = static_cast<std::uint32_t>(collective_.size());
    options.instance = instance;
    options.lineage = recovered_.base.lineage;
    options.seed = Draw();
    options.follows = follows_;
    options.reserve_bytes = options_.journal_reserve_bytes;
    options.segment_bytes = options_.journal_segment_bytes;
    options.max_queued_bytes = options_.journal_queued_bytes;
    options.threads = options_.threads;
    options.still_ours = options_.still_ours;
    auto journal = Journal::Start(files_, options,
                                  {.on_durable = [tell = std::move(on_durable)](std::uint64_t) { tell(); },
                                   .on_failure = options_.on_failure});
    // No rank may append before all ranks have begun their journals.
    if (Status all = Agree(journal.status()); !all.ok()) return all;
    return journal;
  }

  Starts RecordStart(std::uint64_t instance) {
    std::vector<FoundTable> found;
    tables_.ForEach([&](const Table& table) { found.push_back({table.generation, table.steps}); });
    starts_.Add(instance, std::move(found));
    if (IsRankZero()) {
      const Status written = WriteWholeFile(files_, options_.folder, kStartsName, SerializeStarts(starts_));
      if (!written.ok()) {
        spdlog::warn(
            "where this start began is not written down, so clients may not hear of steps that it lacks once "
            "the server was started again: {}",
            written.message());
      }
    }
    return std::move(starts_);
  }

 private:
  bool IsRankZero() const { return Value(collective_.rank()) == 0; }

  // Rank 0 writes the file once all ranks have read it.
  void LearnOfEarlierStarts() {
    const std::string path = options_.folder + "/" + std::string(kStartsName);
    auto starts = ReadStarts(files_, path);
    if (starts.status().code() == StatusCode::kNotFound) return;
    if (starts.ok()) {
      starts_ = std::move(*starts);
    } else {
      spdlog::warn(
          "where earlier starts began is not known, so clients may not hear of steps that one has lost: {}",
          starts.status().message());
    }
  }

  std::string JournalFolder() const { return options_.folder + "/journal"; }
  std::string CheckpointFolder() const { return options_.folder + "/checkpoints"; }

  // Returns this rank's error, or an error that says that another rank has one, or OK if none has.
  Status Agree(const Status& mine) {
    const auto failed = AllGatherValues(collective_, std::uint64_t{mine.ok() ? 0U : 1U});
    if (!mine.ok()) return mine;
    for (std::size_t rank = 0; rank < failed.size(); ++rank) {
      if (failed[rank] != 0) return Unavailable("rank " + std::to_string(rank) + " could not recover");
    }
    return {};
  }

  // Opens the folder and checks its content on rank 0, before any rank reads.
  Status Open() {
    struct Opened {
      std::uint64_t lineage = 0;
    };
    Status mine;
    Opened opened;
    if (IsRankZero()) {
      const auto folder = OpenFolder(files_, options_.folder);
      mine = folder.status();
      if (folder.ok()) {
        opened.lineage = folder->lineage;
        since_ = folder->since;
        mine = files_.MakeFolder(JournalFolder());
        if (mine.ok()) mine = files_.MakeFolder(CheckpointFolder());
        if (mine.ok()) mine = Checkpoints(files_, CheckpointFolder()).RemoveLeftovers();
        if (mine.ok()) mine = files_.SyncFolder(options_.folder);
        if (mine.ok()) mine = SyncJournals(files_, JournalFolder());
      }
    }
    recovered_.base.lineage = AllGatherValues(collective_, opened).front().lineage;
    return mine;
  }

  // Fails if a newer checkpoint cannot be used and the journal lacks its updates: otherwise acknowledged
  // updates would be lost silently.
  Status IsNewest() {
    const auto names = files_.List(CheckpointFolder());
    if (!names.ok()) return names.status();
    for (const std::string& name : *names) {
      std::uint64_t round = 0;  // the round at the start of an id
      std::from_chars(name.data(), name.data() + name.size(), round);
      if (round <= recovered_.round) continue;
      std::string why = "checkpoint ";
      why.append(name).append(" cannot be used (the log says why), and what can goes up to round ");
      why.append(std::to_string(recovered_.round)).append(": move ").append(CheckpointFolder());
      return DataLoss(why.append("/").append(name).append(" away to go on without the updates since"));
    }
    return {};
  }

  // Loads the newest intact checkpoint. If a rank finds a damaged one, all ranks take the one before it,
  // which has a longer journal.
  Status LoadNewest() {
    std::vector<std::string> refused;
    for (;;) {
      const Checkpoints checkpoints(files_, CheckpointFolder());
      const auto newest = checkpoints.Newest(refused);
      if (newest.status().code() == StatusCode::kNotFound) return Agree({});
      if (Status all = Agree(newest.status()); !all.ok()) return all;
      const Manifest& last = newest->chain.back();
      for (const std::string& why : newest->passed_over) spdlog::error("{}", why);
      Result<SavedTables> loaded = LoadOf(newest->chain);
      const Status mine = loaded.status();
      // FAILED_PRECONDITION means that some file is damaged. Other errors would recur.
      const auto damaged = AllGatherValues(
          collective_, std::uint64_t{mine.code() == StatusCode::kFailedPrecondition ? 1U : 0U});
      if (std::ranges::find(damaged, 1U) == damaged.end()) {
        if (Status all = Agree(mine); !all.ok()) return all;
        tables_.Replace(std::move(*loaded));
        recovered_.base.newest = last.name();
        recovered_.base.newest_round = recovered_.round = last.round;
        recovered_.base.newest_bytes = last.Bytes();
        recovered_.base.newest_rows = last.Rows();
        since_ = last.created;
        recovered_.base.links = newest->chain.size();
        return {};
      }
      spdlog::error("checkpoint {} cannot be used{}", last.id, mine.ok() ? "" : ": " + mine.message());
      refused.push_back(last.id);
    }
  }

  // Takes rank 0's clock, because ranks' clocks differ.
  void AgreeOnAge() {
    const std::uint64_t now = options_.unix_time();
    const auto ages = AllGatherValues(collective_, AgeOf(since_.value_or(now), now).count());
    recovered_.base.age = std::chrono::milliseconds(ages.front());
  }

  Result<SavedTables> LoadOf(const Chain& chain) {
    const Manifest& last = chain.back();
    if (last.data_lineage == recovered_.base.lineage) return loader_.Load(chain);
    return DataLoss("checkpoint " + last.id + " is of lineage " + Hex(last.data_lineage) +
                    ", and the folder of " + Hex(recovered_.base.lineage));
  }

  Status ReplayJournals() {
    auto set = ReadJournals(files_, JournalFolder(), recovered_.base.lineage, recovered_.round);
    if (!set.ok()) return set.status();
    follows_ = set->Next();
    if (IsRankZero()) {
      for (const std::string& what : set->broken_off) spdlog::warn("{}", what);
    }
    if (options_.mode != DurabilityMode::kSync && !set->instances.empty())
      spdlog::debug("the journal is read, and not gone on with");
    JournalRounds rounds(files_, std::move(*set));
    for (;;) {
      const Result<bool> next = rounds.Next();
      if (!next.ok()) return next.status();
      if (!*next) break;
      if (Status applied = ReplayRound(rounds); !applied.ok()) return applied;
      recovered_.round = rounds.round();
      ++recovered_.rounds;
    }
    return {};
  }

  // Compares what the replayed rounds evicted, on all ranks, with what their records say.
  Status CompareEvictions() {
    EvictedSums evicted = replay_.evicted;
    collective_.AllReduceSum({&evicted.rows, 2});
    const EvictedSums& recorded = replay_.recorded_evicted;
    if (evicted == recorded) return {};
    return DataLoss("the replayed rounds have evicted " + std::to_string(evicted.rows) +
                    " rows with the checksum " + Hex(evicted.checksum) + ", and the journal says " +
                    std::to_string(recorded.rows) + " with " + Hex(recorded.checksum));
  }

  Status ReplayRound(const JournalRounds& rounds) {
    std::vector<RecordOfRank> records;
    bodies_.resize(rounds.ranks());
    for (std::size_t rank = 0; rank < rounds.ranks(); ++rank) {
      const std::uint64_t bytes = rounds.body_bytes(rank);
      std::vector<std::uint64_t>& memory = bodies_[rank];  // aligned like records
      memory.resize((bytes + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t));
      const auto body = std::as_writable_bytes(std::span(memory)).first(bytes);
      if (Status read = rounds.ReadBody(rank, body); !read.ok()) return read;
      records.push_back({RecordKind{rounds.kind(rank)}, body});
    }
    Status applied = slotwise::ReplayRound(operations_, replay_, records);
    const bool loaded = std::exchange(replay_.loaded_a_checkpoint, false);
    if (std::exchange(replay_.rows_were_altered, false) || loaded) {
      // Later changes are no delta of the newest checkpoint.
      recovered_.base.newest.reset();
      recovered_.base.links = 0;
    }
    if (loaded) recovered_.base.loaded_round = rounds.round();
    if (applied.ok()) return applied;
    return applied.InWords(rounds.PlaceOf(replay_.reads_of) + ": " + applied.message());
  }

  const DurabilityOptions options_;
  const OperationTable& operations_;
  FileSystem& files_;
  Collective& collective_;
  Tables& tables_;
  TableMaker& maker_;
  CheckpointLoader loader_;
  ReplayContext replay_;
  Recovered recovered_;
  std::optional<std::uint64_t> since_;  // when the state on disk, without the journal, was current
  JournalPosition follows_;
  Starts starts_;
  std::vector<std::vector<std::uint64_t>> bodies_;  // [ranks that recorded], of the replayed round
};

Recovery::Recovery(const DurabilityOptions& options, const OperationTable& operations, Device& device,
                   Collective& collective, Tables& tables, TableMaker& maker)
    : impl_(std::make_unique<Impl>(options, operations, device, collective, tables, maker)) {}
Recovery::~Recovery() = default;

Result<Recovered> Recovery::Run() { return impl_->Run(); }
Result<std::unique_ptr<Journal>> Recovery::StartJournal(std::uint64_t instance,
                                                        std::function<void()> on_durable) {
  return impl_->StartJournal(instance, std::move(on_durable));
}

Starts Recovery::RecordStart(std::uint64_t instance) { return impl_->RecordStart(instance); }

}  // namespace slotwise
