#include "server/engine/checkpoint_job.h"

#include <algorithm>
#include <new>
#include <span>
#include <string>
#include <utility>

#include "slotwise/table_options.h"

namespace slotwise {
namespace {

// Bounds an update's wait for a table's next sorted keys. The first sorted keys come once all keys are in
// their buckets, which takes about 3 s for 100 million keys.
constexpr std::chrono::milliseconds kLongestSort{20000};

constexpr const char* kAdvice =
    ": raise durability.max_copy_on_write_mib, which keeps them meanwhile, or save when less is pushed";

// A piece of sorting has the rows of this many buffers.
constexpr std::size_t kBuffersASort = 4;

}  // namespace

CheckpointJob::CheckpointJob(Device& device, CheckpointJobOptions options,
                             std::vector<SnapshotOfTable> tables, std::function<void()> nudge)
    : options_(std::move(options)), nudge_(std::move(nudge)), stream_(device.MakeStream()) {
  std::size_t largest = 0;  // the largest record
  for (SnapshotOfTable& snapshot : tables) {
    Table& table = tables_.emplace_back();
    table.floats = RecordFloats(snapshot.options);
    table.count = snapshot.info.keys.size();
    table.snapshot = std::move(snapshot);
    largest = std::max(largest, table.floats * sizeof(float));
  }
  for (std::size_t b = 0; b < options_.buffers; ++b)
    buffers_.push_back({.memory = device.AllocateHost(std::max(options_.buffer_bytes, largest))});
  for (Buffer& buffer : buffers_) free_.push_back(&buffer);
}

std::size_t CheckpointJob::RowsABuffer(const Table& table) const {
  return std::max<std::size_t>(1, options_.buffer_bytes / (table.floats * sizeof(float)));
}

// The engine's thread calls the functions below.

std::size_t CheckpointJob::Advance(std::size_t bytes) {
  std::size_t asked = 0;
  while (asked < bytes) {
    // A device that is asked for a second read makes the rounds wait for the first.
    HandOver();
    if (rows_are_on_the_way()) break;
    Buffer* buffer = nullptr;
    std::size_t table = 0;
    {
      const std::scoped_lock lock(mutex_);
      while (next_to_read_ < tables_.size() && tables_[next_to_read_].asked == tables_[next_to_read_].count) {
        ++next_to_read_;
      }
      const bool ready =
          next_to_read_ < tables_.size() && tables_[next_to_read_].asked < tables_[next_to_read_].sorted;
      if (cancelled_ || !ready || free_.empty()) break;
      table = next_to_read_;
      buffer = free_.front();
      free_.pop_front();
    }
    Ask(table, buffer);
    asked += buffer->rows * tables_[table].floats * sizeof(float);
  }
  HandOver();
  return asked;
}

void CheckpointJob::AdvanceAndWait(std::size_t bytes) {
  Advance(bytes);
  if (!rows_are_on_the_way()) return;
  stream_->Wait();
  HandOver();
}

bool CheckpointJob::ReadNow(const ShardSnapshot& snapshot, std::chrono::milliseconds& left) {
  const auto found =
      std::ranges::find_if(tables_, [&](const Table& table) { return table.snapshot.snapshot == &snapshot; });
  Table& table = *found;
  Buffer* buffer = nullptr;
  // Rows on their way have to arrive before their buffers come back.
  stream_->Wait();
  HandOver();
  {
    std::unique_lock lock(mutex_);
    const auto give_up = [&](Status why) {
      cancelled_ = true;
      why_ = std::move(why);
      changed_.notify_all();
    };
    waited_for_ = &table;
    if (!options_.threads->WaitFor(
            changed_, lock,
            [&] { return cancelled_ || table.asked < table.sorted || table.asked == table.count; },
            kLongestSort)) {
      give_up(ResourceExhausted(std::string("rows changed for too long while a table's keys were sorted") +
                                kAdvice));
    } else {
      const auto waited = options_.threads->WaitFor(
          changed_, lock, [&] { return cancelled_ || !free_.empty() || table.asked == table.count; }, left);
      left = waited.value_or(std::chrono::milliseconds(0));
      if (!waited)
        give_up(
            ResourceExhausted(std::string("rows changed faster than the disk took those of before") + kAdvice)
                .Because(Reason::kDiskFull));
    }
    waited_for_ = nullptr;
    if (cancelled_ || table.asked == table.count) return false;
    buffer = free_.front();
    free_.pop_front();
  }
  Ask(static_cast<std::size_t>(found - tables_.begin()), buffer);
  stream_->Wait();
  HandOver();
  return true;
}

void CheckpointJob::Ask(std::size_t t, Buffer* buffer) {
  Table& table = tables_[t];
  buffer->table = t;
  {
    const std::scoped_lock lock(mutex_);
    buffer->rows = std::min(RowsABuffer(table), table.sorted - table.asked);
  }
  table.snapshot.snapshot->Read(*stream_, std::span(table.rows).subspan(table.asked, buffer->rows),
                                buffer->records());
  table.asked += buffer->rows;
  on_the_way_.push_back(buffer);
}

void CheckpointJob::HandOver() {
  if (on_the_way_.empty() || !stream_->IsDone()) return;
  {
    const std::scoped_lock lock(mutex_);
    filled_.insert(filled_.end(), on_the_way_.begin(), on_the_way_.end());
  }
  on_the_way_.clear();
  changed_.notify_all();
}

void CheckpointJob::Cancel(const Status& why) {
  {
    const std::scoped_lock lock(mutex_);
    if (!cancelled_) why_ = why;
    cancelled_ = true;
  }
  changed_.notify_all();
}

std::optional<Result<WrittenPart>> CheckpointJob::result() const {
  const std::scoped_lock lock(mutex_);
  return result_;
}

// The job's thread calls the functions below.

CheckpointJob::Progress CheckpointJob::Step() {
  try {
    return DoNext();
  } catch (const std::bad_alloc&) {
    return End(ResourceExhausted("no memory for a checkpoint's keys").Because(Reason::kNoMemory));
  }
}

CheckpointJob::Progress CheckpointJob::DoNext() {
  Buffer* buffer = nullptr;
  Status given_up;
  {
    const std::scoped_lock lock(mutex_);
    if (result_) return Progress::kEnded;
    if (cancelled_) given_up = why_;
    if (!filled_.empty()) buffer = filled_.front();
  }
  if (!given_up.ok()) return End(given_up);
  if (!writer_) {
    auto begun = CheckpointWriter::Begin(*options_.files, options_.folder, options_.id, options_.rank);
    if (!begun.ok()) return End(begun.status());
    writer_.emplace(std::move(*begun));
  }
  if (buffer != nullptr) {
    if (Status written = Write(*buffer); !written.ok()) return End(written);
    {
      const std::scoped_lock lock(mutex_);
      filled_.pop_front();
      free_.push_back(buffer);
    }
    changed_.notify_all();
    nudge_();
    return Progress::kWorked;
  }
  if (Table* const table = NextToSort(); table != nullptr) {
    const Status sorted = table->writer ? SortPiece(*table) : BeginSort(*table);
    if (!sorted.ok()) return End(sorted);
    changed_.notify_all();
    nudge_();
    return Progress::kWorked;
  }
  // A table without rows never reaches the end of its reads. All tables that can end begin to end here, so
  // that the first sync brings the files of all of them to disk.
  for (Table& table : tables_) {
    if (table.ending || table.written < table.count) continue;
    if (Status begun = BeginClosing(table); !begun.ok()) return End(begun);
    return Progress::kWorked;
  }
  for (Table& table : tables_) {
    if (table.entry || !table.ending) continue;
    if (Status closed = Close(table); !closed.ok()) return End(closed);
    return Progress::kWorked;
  }
  return closed_ == tables_.size() ? End({}) : Progress::kWaits;
}

void CheckpointJob::Wait() {
  std::unique_lock lock(mutex_);
  options_.threads->Wait(changed_, lock, [&] { return cancelled_ || !filled_.empty(); });
}

CheckpointJob::Table* CheckpointJob::NextToSort() {
  const auto unsorted = [](const Table& table) { return !table.writer || table.sort; };
  const std::scoped_lock lock(mutex_);
  if (waited_for_ != nullptr && !waited_for_->ending && unsorted(*waited_for_)) return waited_for_;
  const auto next =
      std::ranges::find_if(tables_, [&](const Table& table) { return !table.ending && unsorted(table); });
  return next == tables_.end() ? nullptr : &*next;
}

Status CheckpointJob::BeginSort(Table& table) {
  SnapshotInfo& info = table.snapshot.info;
  const auto item = [&](std::size_t i) { return KeyRow{info.keys[i], info.rows[i]}; };
  table.sort.emplace(table.count, item, BucketOf);
  // The assignment `= {}` would keep a vector's memory.
  info.keys = std::vector<Key>();
  info.rows = std::vector<RowIndex>();
  table.rows.resize(table.count, RowIndex{0});
  BucketOrder<Key> erased = SortByBucket(std::exchange(info.erased, {}), BucketOf);
  TableWriterOptions options{.table = table.snapshot.table,
                             .options = table.snapshot.options,
                             .value_type = SavedAs(options_.value_type, table.snapshot.options),
                             .starts = table.sort->starts(),
                             .erased_starts = {}};
  if (options_.delta) options.erased_starts = std::move(erased.starts);
  auto begun = writer_->BeginTable(std::move(options));
  if (!begun.ok()) return begun.status();
  table.writer.emplace(std::move(*begun));
  return options_.delta ? table.writer->AppendErased(erased.items) : Status();
}

Status CheckpointJob::SortPiece(Table& table) {
  const std::span<const KeyRow> piece = table.sort->SortNext(kBuffersASort * RowsABuffer(table));
  std::vector<Key> keys(piece.size());
  std::ranges::transform(piece, keys.begin(), &KeyRow::key);
  std::ranges::transform(piece, table.rows.begin() + static_cast<std::ptrdiff_t>(table.sorted), &KeyRow::row);
  const bool was_last = table.sorted + piece.size() == table.count;
  {
    const std::scoped_lock lock(mutex_);
    table.sorted += piece.size();
  }
  if (was_last) table.sort.reset();
  return table.writer->AppendKeys(keys);
}

Status CheckpointJob::Write(const Buffer& buffer) {
  Table& table = tables_[buffer.table];
  table.written += buffer.rows;
  Status status = table.writer->AppendRecords({buffer.records(), buffer.rows * table.floats});
  if (status.ok() && table.written == table.count) status = BeginClosing(table);
  return status;
}

Status CheckpointJob::BeginClosing(Table& table) {
  table.ending = true;
  return table.writer->BeginFinish();
}

Status CheckpointJob::Close(Table& table) {
  auto entry = table.writer->Finish();
  if (!entry.ok()) return entry.status();
  table.entry = std::move(*entry);
  table.writer.reset();
  ++closed_;
  return {};
}

CheckpointJob::Progress CheckpointJob::End(Status status) {
  WrittenPart part;
  if (status.ok() && options_.ledger) {
    auto ledger = writer_->WriteLedger(*options_.ledger);
    status = ledger.status();
    if (ledger.ok()) part.ledger = std::move(*ledger);
  }
  if (status.ok()) status = writer_->Finish();
  writer_.reset();
  for (Table& table : tables_) {
    if (status.ok()) part.tables.push_back(std::move(*table.entry));
    table.writer.reset();
  }
  {
    const std::scoped_lock lock(mutex_);
    if (!status.ok()) cancelled_ = true;  // a thread that waits for a buffer waits no longer
    result_ = status.ok() ? Result<WrittenPart>(std::move(part)) : Result<WrittenPart>(status);
  }
  changed_.notify_all();
  nudge_();
  return Progress::kEnded;
}

}  // namespace slotwise
