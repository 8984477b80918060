#include "server/engine/checkpoint_job.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "slotwise/table_options.h"

namespace slotwise {
namespace {

// An update waits no longer than this for a table's keys to be sorted; 100 million take about 10 s.
constexpr std::chrono::milliseconds kLongestSort{20000};

}  // namespace

CheckpointJob::CheckpointJob(Device& device, CheckpointJobOptions options,
                             std::vector<SnapshotOfTable> tables, std::function<void()> nudge)
    : options_(std::move(options)), nudge_(std::move(nudge)), stream_(device.MakeStream()) {
  std::size_t largest = 0;  // a record
  for (SnapshotOfTable& snapshot : tables) {
    Table& table = tables_.emplace_back();
    table.floats = snapshot.options.dim + StateFloats(snapshot.options.optimizer.kind, snapshot.options.dim);
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

// On the engine's thread.

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
      while (next_to_read_ < tables_.size() && tables_[next_to_read_].sorted &&
             tables_[next_to_read_].asked == tables_[next_to_read_].rows.size()) {
        ++next_to_read_;
      }
      const bool ready = next_to_read_ < tables_.size() && tables_[next_to_read_].sorted;
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

bool CheckpointJob::ReadNow(const Shard& shard, std::chrono::milliseconds& left) {
  const auto found =
      std::ranges::find_if(tables_, [&](const Table& table) { return table.snapshot.shard == &shard; });
  Table& table = *found;
  Buffer* buffer = nullptr;
  // What is on its way has to arrive for buffers to come back.
  stream_->Wait();
  HandOver();
  {
    std::unique_lock lock(mutex_);
    const auto give_up = [&](const char* why) {
      cancelled_ = true;
      why_ = ResourceExhausted(
          std::string(why) +
          ": raise durability.max_preimage_mib, which keeps them meanwhile, or save when less "
          "is pushed");
      changed_.notify_all();
    };
    if (!options_.threads->WaitFor(
            changed_, lock, [&] { return cancelled_ || table.sorted; }, kLongestSort)) {
      give_up("rows changed for too long while a table's keys were sorted");
    } else {
      const auto waited = options_.threads->WaitFor(
          changed_, lock, [&] { return cancelled_ || !free_.empty() || table.asked == table.rows.size(); },
          left);
      left = waited.value_or(std::chrono::milliseconds(0));
      if (!waited) give_up("rows changed faster than the disk took those of before");
    }
    if (cancelled_ || table.asked == table.rows.size()) return false;
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
  buffer->rows = std::min(RowsABuffer(table), table.rows.size() - table.asked);
  table.snapshot.shard->ReadSnapshot(*stream_, std::span(table.rows).subspan(table.asked, buffer->rows),
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

// On the job's thread.

CheckpointJob::Progress CheckpointJob::Step() {
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
  if (next_to_sort_ < tables_.size()) {
    Sort(tables_[next_to_sort_++]);
    nudge_();
    return Progress::kWorked;
  }
  // Tables end in any order, and those without rows have nobody to end them. All that can end begin to, so
  // that the first sync brings the files of all to disk.
  for (Table& table : tables_) {
    if (table.ending || table.written < table.rows.size()) continue;
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

void CheckpointJob::Sort(Table& table) {
  SnapshotInfo& info = table.snapshot.info;
  std::vector<KeyRow> items(info.keys.size());
  for (std::size_t i = 0; i < items.size(); ++i) items[i] = {info.keys[i], info.rows[i]};
  info.keys = {};
  info.rows = {};
  BucketOrder<KeyRow> sorted = SortByBucket(std::move(items), BucketOf);
  table.erased = SortByBucket(std::exchange(info.erased, {}), BucketOf);
  std::vector<Key> keys(sorted.items.size());
  std::vector<RowIndex> rows(sorted.items.size());
  std::ranges::transform(sorted.items, keys.begin(), &KeyRow::key);
  std::ranges::transform(sorted.items, rows.begin(), &KeyRow::row);
  const std::scoped_lock lock(mutex_);
  table.starts = std::move(sorted.starts);
  table.keys = std::move(keys);
  table.rows = std::move(rows);
  table.sorted = true;
  changed_.notify_all();
}

Status CheckpointJob::Open(Table& table) {
  TableWriterOptions options{.table = table.snapshot.table,
                             .options = table.snapshot.options,
                             .value_type = options_.value_type,
                             .starts = std::move(table.starts),
                             .erased_starts = {}};
  if (options_.delta) options.erased_starts = std::move(table.erased.starts);
  auto begun = writer_->BeginTable(std::move(options));
  if (!begun.ok()) return begun.status();
  table.writer.emplace(std::move(*begun));
  if (Status keys = table.writer->AppendKeys(std::exchange(table.keys, {})); !keys.ok()) return keys;
  return options_.delta ? table.writer->AppendErased(std::exchange(table.erased.items, {})) : Status();
}

Status CheckpointJob::Write(const Buffer& buffer) {
  Table& table = tables_[buffer.table];
  if (!table.writer) {
    if (Status opened = Open(table); !opened.ok()) return opened;
  }
  table.written += buffer.rows;
  return table.writer->AppendRecords({buffer.records(), buffer.rows * table.floats});
}

Status CheckpointJob::BeginClosing(Table& table) {
  if (!table.writer) {
    if (Status opened = Open(table); !opened.ok()) return opened;
  }
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
    if (!status.ok()) cancelled_ = true;  // whoever waits for a buffer waits no longer
    result_ = status.ok() ? Result<WrittenPart>(std::move(part)) : Result<WrittenPart>(status);
  }
  changed_.notify_all();
  nudge_();
  return Progress::kEnded;
}

}  // namespace slotwise
