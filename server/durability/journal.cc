#include "server/durability/journal.h"

#include <algorithm>
#include <filesystem>
#include <utility>

namespace slotwise {
namespace {

constexpr std::array<std::byte, 8> kPadding{};

Status SyncParent(FileSystem& files, const std::string& folder) {
  const std::string parent = std::filesystem::path(folder).parent_path().string();
  return files.SyncFolder(parent.empty() ? "." : parent);
}

}  // namespace

struct Journal::Segment {
  explicit Segment(Threads& threads) : file_mutex(threads) {}

  std::string path;
  SegmentHeader header;

  FileLock file_mutex;  // guards `file`; the writing thread holds it while it syncs
  std::unique_ptr<WritableFile> file;
  std::atomic<std::uint64_t> space = 0;    // size of the file; changes under file_mutex
  std::atomic<std::uint64_t> written = 0;  // end of the bytes on disk; 0: no header yet. The writer's

  // The appending thread's.
  std::uint64_t end = kSegmentHeaderBytes;  // end of the appended records
  std::uint64_t last_round = 0;             // of these records; 0 if there are none
};

struct Journal::Record {
  std::shared_ptr<Segment> segment;
  std::uint64_t round = 0;
  std::uint32_t kind = 0;
  std::uint64_t body_bytes = 0;
  std::vector<JournalPiece> pieces;
};

Result<std::unique_ptr<Journal>> Journal::Start(FileSystem& files, const JournalOptions& options,
                                                Callbacks callbacks) {
  if (options.ranks == 0 || options.rank >= options.ranks || options.instance == 0) {
    return InvalidArgument("a journal needs a server instance, and a rank below ranks");
  }
  if (options.reserve_bytes == 0 || options.folder.empty()) {
    return InvalidArgument("a journal needs a folder, and reserve_bytes above 0");
  }
  if (options.reserve_bytes + options.segment_bytes > kMaxSegmentBytes - kMaxRecordBytes) {
    return InvalidArgument("a journal's segment_bytes and reserve_bytes are at most " +
                           std::to_string(kMaxSegmentBytes - kMaxRecordBytes) + " together");
  }
  std::unique_ptr<Journal> journal(new Journal(files, options, std::move(callbacks)));
  if (Status status = journal->MakeFirstSegment(); !status.ok()) return status;
  return journal;
}

Journal::Journal(FileSystem& files, JournalOptions options, Callbacks callbacks)
    : files_(files),
      options_(std::move(options)),
      callbacks_(std::move(callbacks)),
      appended_(options_.follows.round),
      durable_(options_.follows.round),
      complete_(options_.follows.round),
      marked_(options_.follows.round) {}

Journal::~Journal() = default;

std::string Journal::RankPath(std::uint32_t rank) const { return options_.folder + "/" + RankFolder(rank); }

Status Journal::MakeFirstSegment() {
  const std::string folder = RankPath(options_.rank);
  if (Status status = files_.MakeFolder(options_.folder); !status.ok()) return status;
  if (Status status = SyncParent(files_, options_.folder); !status.ok()) return status;
  if (Status status = files_.MakeFolder(folder); !status.ok()) return status;
  if (Status status = files_.SyncFolder(options_.folder); !status.ok()) return status;
  if (Status status = MakeSegment(appended_ + 1, 0); !status.ok()) return status;
  written_ = segments_.back();
  return WriteHeader(*written_);
}

Status Journal::OutOfSpace(const Status& reason) {
  blocked_.store(true, std::memory_order_relaxed);
  // A caller would take a file's NOT_FOUND for a missing table.
  if (reason.code() != StatusCode::kResourceExhausted) {
    return {StatusCode::kInternal,
            "the journal in " + RankPath(options_.rank) + " cannot go on: " + reason.message()};
  }
  return ResourceExhausted("the journal in " + RankPath(options_.rank) + " has no space: " + reason.message(),
                           kRetryOnFullDisk)
      .Because(Reason::kDiskFull);
}

Status Journal::MakeSegment(std::uint64_t first_round, std::uint64_t bytes) {
  if (spare_ == nullptr) {
    auto segment = std::make_shared<Segment>(*options_.threads);
    segment->path = RankPath(options_.rank) + "/" + ToString(SegmentName{first_round, options_.instance});
    segment->header = {.rank = options_.rank,
                       .ranks = options_.ranks,
                       .lineage = options_.lineage,
                       .instance = options_.instance,
                       .run_number = options_.follows.run_number + 1,
                       .follows = options_.follows.instance,
                       .follows_round = options_.follows.round,
                       .first_round = first_round,
                       .after_round = 0,
                       .seed = options_.seed};
    auto file = files_.Create(segment->path);
    if (!file.ok()) return OutOfSpace(file.status());
    segment->file = std::move(*file);
    spare_ = std::move(segment);
  }
  if (Status status = TakeSpace(*spare_, kSegmentHeaderBytes + bytes); !status.ok()) return status;
  spare_->header.after_round = appended_;
  segments_.push_back(std::move(spare_));
  begin_.reset();
  return Status();
}

// A small segment takes little space ahead, because a server that restarts often leaves a segment each time.
std::uint64_t Journal::StepFrom(std::uint64_t space) const {
  return std::min(options_.reserve_bytes, std::max(kFirstStep, space));
}

Status Journal::TakeSpace(Segment& segment, std::uint64_t bytes) {
  if (bytes <= segment.space.load()) return Status();
  // Rounds wait for this lock. Once one has waited in vain, later ones do not wait for the same sync.
  std::unique_lock<FileLock> lock(segment.file_mutex, std::defer_lock);
  const bool locked = lock.try_lock_for(sync_is_slow_ ? std::chrono::milliseconds(0) : options_.longest_wait);
  if (!locked) {
    sync_is_slow_ = true;
    return Unavailable("the journal's disk is slower than what is pushed: a sync in " +
                       RankPath(options_.rank) + " takes longer than " +
                       std::to_string(options_.longest_wait.count()) + " ms: try again")
        .Because(Reason::kJournalBehind);
  }
  if (bytes <= segment.space.load()) return Status();
  const std::uint64_t step = StepFrom(segment.space.load());
  const std::uint64_t space = (bytes + step - 1) / step * step;
  if (Status status = segment.file->Reserve(space); !status.ok()) return OutOfSpace(status);
  segment.space = space;
  return Status();
}

bool Journal::NeedsNewSegment(std::uint64_t record_bytes) const {
  const Segment& last = *segments_.back();
  if (last.last_round == 0) return false;
  return begin_.has_value() || last.end + record_bytes > options_.segment_bytes;
}

Status Journal::Reserve(std::uint64_t body_bytes) {
  blocked_.store(false, std::memory_order_relaxed);
  if (failed()) {
    return Unavailable("the journal in " + RankPath(options_.rank) + " has failed")
        .Because(Reason::kJournalBehind);
  }
  if (body_bytes > kMaxRecordBytes) {
    return ResourceExhausted("the journal has no records of " + std::to_string(body_bytes) +
                             " bytes: at most kMaxRecordBytes, " + std::to_string(kMaxRecordBytes))
        .Because(Reason::kTooLarge);
  }
  const std::uint64_t bytes = BytesOfRecord(body_bytes);
  const std::uint64_t queued = queued_bytes();
  if (queued > 0 && queued + bytes > options_.max_queued_bytes) {
    return Unavailable("the journal's disk is slower than what is pushed: " + std::to_string(queued) +
                       " bytes wait to be written to " + RankPath(options_.rank) + " and " +
                       std::to_string(bytes) + " more would pass max_queued_bytes, " +
                       std::to_string(options_.max_queued_bytes) + ": try again")
        .Because(Reason::kJournalBehind);
  }
  return Room(bytes);
}

Status Journal::Room(std::uint64_t record_bytes) {
  if (NeedsNewSegment(record_bytes)) return MakeSegment(begin_.value_or(appended_ + 1), record_bytes);
  return TakeSpace(*segments_.back(), segments_.back()->end + record_bytes);
}

void Journal::Append(std::uint64_t round, std::uint32_t kind, std::vector<JournalPiece> pieces) {
  if (failed()) return;
  Record record;
  for (const JournalPiece& piece : pieces) record.body_bytes += piece.bytes.size();
  const std::uint64_t bytes = BytesOfRecord(record.body_bytes);
  const Segment& last = *segments_.back();
  // Reserved space is used, even if BeginSegment was called or the segment has reached its size.
  if (last.end + bytes > last.space.load() && NeedsNewSegment(bytes)) {
    if (Status status = MakeSegment(begin_.value_or(round), bytes); !status.ok()) {
      Fail(status.message());
      return;
    }
  }
  Segment& segment = *segments_.back();
  segment.end += bytes;
  segment.last_round = round;
  appended_ = round;
  counters_.NoteAppended(round);
  record.segment = segments_.back();
  record.round = round;
  record.kind = kind;
  record.pieces = std::move(pieces);
  queued_bytes_ += bytes;
  {
    const std::scoped_lock lock(mutex_);
    queue_.push_back(std::move(record));
  }
  work_.notify_one();
}

void Journal::BeginSegment(std::uint64_t first_round) {
  if (segments_.back()->last_round != 0) begin_ = first_round;
}

Status Journal::RemoveSegmentsBefore(std::uint64_t round) {
  // A segment is removed only after the header of the next one is on disk.
  while (segments_.size() > 1 && segments_[0]->last_round <= round && segments_[1]->written > 0) {
    Status status = files_.Remove(segments_[0]->path);
    if (!status.ok() && status.code() != StatusCode::kNotFound) return status;
    segments_.pop_front();
  }
  if (removed_earlier_) return Status();
  auto folders = files_.List(options_.folder);
  if (!folders.ok()) return folders.status();
  for (const std::string& name : *folders) {
    const auto rank = ParseRankFolder(name);
    if (!rank || *rank % options_.ranks != options_.rank) continue;
    if (Status status = RemoveEarlierInstances(RankPath(*rank), round); !status.ok()) return status;
  }
  removed_earlier_ = round >= options_.follows.round;
  return Status();
}

bool Journal::IsNeeded(std::uint64_t instance, std::uint64_t round) const {
  if (instance == options_.instance) return true;
  return std::ranges::any_of(options_.follows.runs, [&](const EarlierRun& run) {
    return run.instance == instance && run.last_round > round;
  });
}

// Each earlier instance is removed by itself. A server that restarts often may make only one checkpoint each
// time, and would keep the journals of all runs if they were removed only together.
Status Journal::RemoveEarlierInstances(const std::string& folder, std::uint64_t round) {
  auto names = files_.List(folder);
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    const auto segment = ParseSegmentName(name);
    if (!segment || IsNeeded(segment->instance, round)) continue;
    std::string path = folder;
    path.append("/").append(name);
    Status status = files_.Remove(path);
    if (!status.ok() && status.code() != StatusCode::kNotFound) return status;
  }
  return Status();
}

void Journal::NoteComplete(std::uint64_t round) {
  std::uint64_t known = complete_.load();
  bool rests = false;
  {
    const std::scoped_lock lock(mutex_);
    while (known < round && !complete_.compare_exchange_weak(known, round)) {
    }
    rests = rests_;
  }
  if (rests) work_.notify_one();
}

Journal::Work Journal::WaitForWork() {
  std::unique_lock lock(mutex_);
  const auto has_work = [this] { return stopping_ || !queue_.empty(); };
  while (!has_work()) {
    rests_ = true;
    options_.threads->Wait(work_, lock, [&] { return has_work() || MarkIsDue(); });
    rests_ = false;
    if (has_work()) break;
    if (!options_.threads->WaitFor(work_, lock, has_work, options_.mark_after)) return Work::kMark;
  }
  return queue_.empty() ? Work::kStop : Work::kWrite;
}

void Journal::StopWaiting() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
}

void Journal::WriteMark() {
  if (!MarkIsDue()) return;
  Segment& segment = *written_;
  const std::uint64_t complete = complete_;
  marked_ = complete;  // if this mark finds no space now, a later try would not either
  if (segment.written + kRecordHeaderBytes > segment.space) return;
  const RecordHeaderBytes bytes = EncodeMark(
      {.round = complete, .instance = options_.instance, .group = segment.written, .complete = complete},
      options_.seed);
  const std::span<const std::byte> piece(bytes);
  const std::scoped_lock lock(segment.file_mutex);
  // No caller relies on a mark, and a copy-on-write disk may be full. So a failed write is ignored.
  if (!segment.file->WriteAt(segment.written, std::span(&piece, 1)).ok()) return;
  if (Status status = segment.file->Sync(); !status.ok()) Fail(status.message());
}

bool Journal::WriteQueued() {
  std::vector<Record> records;
  {
    const std::scoped_lock lock(mutex_);
    records.swap(queue_);
  }
  if (records.empty()) return false;
  if (failed()) return true;
  if (Status status = WriteAll(records); !status.ok()) Fail(status.message());
  return true;
}

Status Journal::WriteAll(std::span<Record> records) {
  while (!records.empty()) {
    const std::shared_ptr<Segment> segment = records.front().segment;
    if (segment != written_) {
      if (Status status = CloseSegment(*written_); !status.ok()) return status;
      if (Status status = WriteHeader(*segment); !status.ok()) return status;
      written_ = segment;
    }
    std::size_t count = 1;
    while (count < records.size() && records[count].segment == segment) ++count;
    const std::uint64_t round = records[count - 1].round;
    if (Status status = WriteGroup(*segment, records.first(count)); !status.ok()) return status;
    durable_.store(round, std::memory_order_release);
    if (callbacks_.on_durable) callbacks_.on_durable(round);
    records = records.subspan(count);
  }
  return Status();
}

// Gives back unused space.
Status Journal::CloseSegment(Segment& segment) {
  const std::scoped_lock lock(segment.file_mutex);
  Status status = segment.file->Truncate(segment.written);
  segment.file.reset();
  return status;
}

Status Journal::WriteHeader(Segment& segment) {
  const SegmentHeaderBytes bytes = Encode(segment.header);
  const std::span<const std::byte> piece(bytes);
  const std::scoped_lock lock(segment.file_mutex);
  if (Status status = segment.file->WriteAt(0, std::span(&piece, 1)); !status.ok()) return status;
  if (Status status = segment.file->Sync(); !status.ok()) return status;
  if (Status status = files_.SyncFolder(RankPath(options_.rank)); !status.ok()) return status;
  segment.written = kSegmentHeaderBytes;
  return Status();
}

Status Journal::WriteGroup(Segment& segment, std::span<Record> records) {
  const std::uint64_t group = segment.written;
  const std::uint64_t complete = complete_;
  std::uint64_t bytes = 0;
  std::vector<RecordHeaderBytes> headers(records.size());
  std::vector<std::span<const std::byte>> spans;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const Record& record = records[i];
    RecordHash hash(options_.seed);
    spans.emplace_back(headers[i]);
    for (const JournalPiece& piece : record.pieces) {
      hash.Add(piece.bytes);
      spans.push_back(piece.bytes);
    }
    headers[i] = Encode(RecordHeader{.kind = record.kind,
                                     .round = record.round,
                                     .body_bytes = record.body_bytes,
                                     .instance = options_.instance,
                                     .group = group,
                                     .complete = complete,
                                     .payload_hash = hash.Value()},
                        options_.seed);
    const std::uint64_t record_bytes = BytesOfRecord(record.body_bytes);
    spans.push_back(std::span(kPadding).first(
        static_cast<std::size_t>(record_bytes - kRecordHeaderBytes - record.body_bytes)));
    bytes += record_bytes;
  }
  const std::scoped_lock lock(segment.file_mutex);
  if (Status status = segment.file->WriteAt(group, spans); !status.ok()) return status;
  for (Record& record : records) record.pieces.clear();
  queued_bytes_ -= bytes;
  const auto begin = std::chrono::steady_clock::now();
  if (Status status = segment.file->Sync(); !status.ok()) return status;
  counters_.CountSync(bytes, std::chrono::steady_clock::now() - begin);
  // If another server has taken the folder, the check fails and the records are not published.
  if (Status ours = options_.still_ours ? options_.still_ours() : Status(); !ours.ok()) return ours;
  sync_is_slow_ = false;
  segment.written = group + bytes;
  marked_ = complete;
  TakeSpaceAhead(segment, bytes);
  return Status();
}

// Takes as much space as was just written, so that Reserve need not wait for a sync. Ignores a full disk,
// which Reserve will report.
void Journal::TakeSpaceAhead(Segment& segment, std::uint64_t bytes) {
  const std::uint64_t space = segment.space;
  const std::uint64_t step = StepFrom(space);
  const std::uint64_t wanted = segment.written + std::max(bytes, step / 2);
  if (wanted <= space || wanted > options_.segment_bytes) return;
  const std::uint64_t size = space + (wanted - space + step - 1) / step * step;
  if (segment.file->Reserve(size).ok()) segment.space = size;
}

JournalStats Journal::Stats() const {
  JournalStats stats{.queued_bytes = queued_bytes(),
                     .durable_round = durable(),
                     .failed = failed(),
                     .blocked = blocked(),
                     .syncs = {}};
  counters_.Read(stats);
  return stats;
}

void Journal::Fail(const std::string& reason) {
  if (failed_.exchange(true)) return;
  if (callbacks_.on_failure) callbacks_.on_failure(reason);
}

}  // namespace slotwise
