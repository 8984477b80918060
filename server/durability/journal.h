// Journal: one rank's log of the rounds that changed state. A crash loses no round that was reported durable.
// journal_format.h has the format, and journal_reader.h reads the files.
//
// The engine's thread reserves space for a round before it applies the round, and appends the round's record
// after that. Another thread (journal_thread.h), or a simulator, calls WriteQueued again and again: one call
// writes all queued records and syncs once. When no record has come for a while, it calls WriteMark, so that
// the disk also says of the last records that all ranks have them. A record of a new segment is published
// only after the segment's header and name are on disk, which come after all bytes of the segment before.
//
// A server instance's first Append, on any rank, must come after Start has succeeded on all ranks. By this
// rule recovery tells an aborted start from a rank whose journal is lost.
//
// Thread-safety: Reserve, Append, BeginSegment and RemoveSegmentsBefore are called by one thread;
// WriteQueued, WriteMark and WaitForWork by one thread, which may be another. All else may be called by any
// thread. The callbacks run in the thread that calls WriteQueued or Append, without locks held.
#ifndef SLOTWISE_SERVER_DURABILITY_JOURNAL_H_
#define SLOTWISE_SERVER_DURABILITY_JOURNAL_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "server/counters/durability_counters.h"
#include "server/durability/file_system.h"
#include "server/durability/journal_format.h"
#include "server/durability/threads.h"
#include "slotwise/status.h"

namespace slotwise {

// The time after which a caller may retry a record that found the disk full. Each Reserve tries again; no
// caller is told when space becomes free, for example because a checkpoint lets old segments go.
inline constexpr std::chrono::milliseconds kRetryOnFullDisk{5000};

struct JournalOptions {
  std::string folder;  // of all ranks' journals; its parent exists
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  std::uint64_t instance = 0;  // not 0
  std::uint64_t lineage = 0;
  std::uint64_t seed = 0;  // secret seed of the hashes, drawn at random; ranks may share it or not
  // From JournalSet::Next. This journal gets the rounds after follows.round.
  JournalPosition follows;
  std::uint64_t reserve_bytes = std::uint64_t{64} << 20;    // the largest step in which space is taken
  std::uint64_t segment_bytes = std::uint64_t{1} << 30;     // a segment of this size gets no more records
  std::uint64_t max_queued_bytes = std::uint64_t{1} << 30;  // limit of the bytes that wait to be written
  std::chrono::milliseconds longest_wait{1000};             // for which a Reserve waits for a sync
  // The pause after the last record before a mark. A mark is a sync that the next record may wait for.
  std::chrono::milliseconds mark_after{50};
  // Checks that the folder is still this server's. The writing thread calls it after each sync, before it
  // publishes what the sync made durable. An error counts as an error of the sync. Empty: no check.
  std::function<Status()> still_ours = {};
  Threads* threads = &SystemThreads();  // the threads that call the journal
};

// Bytes of a record. `owner` keeps them alive until they are written; null if they stay alive anyway.
struct JournalPiece {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
};

class Journal {
 public:
  struct Callbacks {
    // Called when all rounds up to `round` are on disk on this rank.
    std::function<void(std::uint64_t round)> on_durable;
    // Called once, when a write or a sync failed. Nothing is written any more, and the process must end.
    std::function<void(const std::string& reason)> on_failure;
  };

  // Makes the rank's folder and its first segment, and returns when they are on disk. `files` must outlive
  // the journal. Errors: INVALID_ARGUMENT, or those of `files`.
  static Result<std::unique_ptr<Journal>> Start(FileSystem& files, const JournalOptions& options,
                                                Callbacks callbacks);

  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // Takes space, so that the next record can be written if its body has at most `body_bytes`. For several
  // records, `body_bytes` is the sum of their bodies and 72 more for each but one. The space is held until
  // the next Reserve or BeginSegment. May wait for a running sync, for JournalOptions::longest_wait at most.
  // After an error nothing has changed, and a later Reserve may succeed.
  // RESOURCE_EXHAUSTED: the disk is full, with a time to try again, or the record is larger than
  // kMaxRecordBytes. UNAVAILABLE: max_queued_bytes wait to be written (a record above this limit is taken
  // when nothing waits), the sync takes longer, or the journal has failed. INTERNAL: no new file can be made.
  Status Reserve(std::uint64_t body_bytes);

  // Queues a record. If no space was reserved for the record and none can be taken, the journal fails. Does
  // nothing after a failure. REQUIRES: `round` is above all rounds before it, and above 0; the pieces have at
  // most kMaxRecordBytes together.
  void Append(std::uint64_t round, std::uint32_t kind, std::vector<JournalPiece> pieces);

  // Directs the records from `first_round` on to a new segment, which the next Reserve makes. A record whose
  // space was reserved before goes where that space is. Does nothing if the newest segment has no records.
  // REQUIRES: `first_round` is above the last appended round.
  void BeginSegment(std::uint64_t first_round);

  // Removes segments that a checkpoint of all rounds up to `round` makes unnecessary: this rank's segments,
  // except the newest, and all segments of earlier server instances, in this rank's folder and in those of
  // ranks that are no more. A segment, or an earlier instance, is removed once all its rounds are at most
  // `round`. After an error, some files may have been removed.
  Status RemoveSegmentsBefore(std::uint64_t round);

  // Says that all ranks have all rounds up to `round` on disk. Later records carry this, so that recovery
  // notices if another rank's journal has lost its end.
  void NoteComplete(std::uint64_t round);

  // Writes and syncs the queued records, and publishes them. Returns whether any were queued.
  bool WriteQueued();

  // Writes and syncs a mark behind the last record, if all ranks are known to have more on disk than the
  // records and the mark before it say. Does nothing without space that was taken before.
  void WriteMark();

  // The next task of the writing thread. kMark: nothing is queued, and a mark is due. kStop: nothing is
  // queued, and StopWaiting was called.
  enum class Work : std::uint8_t { kWrite, kMark, kStop };
  Work WaitForWork();
  void StopWaiting();

  // Returns the last round that is on disk on this rank.
  std::uint64_t durable() const { return durable_.load(std::memory_order_acquire); }
  // Returns the bytes of records that wait to be written or are being written.
  std::uint64_t queued_bytes() const { return queued_bytes_.load(std::memory_order_relaxed); }
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  // Returns whether the last Reserve got no disk space or no new file.
  bool blocked() const { return blocked_.load(std::memory_order_relaxed); }
  JournalStats Stats() const;

 private:
  struct Segment;
  struct Record;

  Journal(FileSystem& files, JournalOptions options, Callbacks callbacks);

  std::string RankPath(std::uint32_t rank) const;
  Status MakeFirstSegment();
  // Makes a segment's file and takes its first space. If taking space fails, the file stays for the next try.
  Status MakeSegment(std::uint64_t first_round, std::uint64_t bytes);
  static constexpr std::uint64_t kFirstStep = std::uint64_t{1} << 20;  // or reserve_bytes, if that is less
  std::uint64_t StepFrom(std::uint64_t space) const;
  Status TakeSpace(Segment& segment, std::uint64_t bytes);
  bool NeedsNewSegment(std::uint64_t record_bytes) const;
  Status Room(std::uint64_t record_bytes);
  Status OutOfSpace(const Status& reason);
  Status RemoveEarlierInstances(const std::string& folder, std::uint64_t round);
  bool IsNeeded(std::uint64_t instance, std::uint64_t round) const;

  Status WriteHeader(Segment& segment);
  Status CloseSegment(Segment& segment);
  Status WriteGroup(Segment& segment, std::span<Record> records);
  Status WriteAll(std::span<Record> records);
  void TakeSpaceAhead(Segment& segment, std::uint64_t bytes);
  bool MarkIsDue() const { return complete_ > marked_ && complete_ <= durable_ && !failed(); }
  void Fail(const std::string& reason);

  FileSystem& files_;
  const JournalOptions options_;
  const Callbacks callbacks_;

  // The appending thread's.
  std::deque<std::shared_ptr<Segment>> segments_;  // oldest first; Append uses the last
  std::shared_ptr<Segment> spare_;                 // a file that got no space yet
  std::uint64_t appended_;                         // the last round
  std::optional<std::uint64_t> begin_;             // from BeginSegment
  bool removed_earlier_ = false;                   // segments of earlier server instances are removed

  std::shared_ptr<Segment> written_;  // the segment written to last; the writing thread's

  std::mutex mutex_;  // guards queue_, rests_ and stopping_
  std::condition_variable work_;
  std::vector<Record> queue_;
  bool rests_ = false;  // the writing thread waits without a time limit
  bool stopping_ = false;

  std::atomic<std::uint64_t> durable_;
  std::atomic<std::uint64_t> complete_;
  std::uint64_t marked_;  // the last complete round that is recorded on disk; the writing thread's
  std::atomic<std::uint64_t> queued_bytes_ = 0;
  std::atomic<bool> failed_ = false;
  std::atomic<bool> blocked_ = false;
  JournalCounters counters_;
  std::atomic<bool> sync_is_slow_ = false;  // a Reserve has waited in vain for the sync that runs
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_JOURNAL_H_
