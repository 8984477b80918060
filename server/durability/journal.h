// Journal: one rank's records of the rounds that changed state, written so that a crash loses none that was
// said to be durable. journal_format.h has the format; journal_reader.h reads it again.
//
// The engine's thread reserves space for a round before it applies it, and appends the round's record after.
// Another thread (journal_thread.h), or a simulator, calls WriteQueued again and again: one call writes all
// records that have queued up and syncs once. When none has come for a while, it calls WriteMark, so that the
// disk says of the last records, too, that all ranks have them. A record of a new segment is published only
// after the segment's header and name are on disk, which come after all that the segment before it holds.
//
// A server instance's first Append, on any rank, must come after Start has succeeded on all ranks: recovery
// tells by it a start that was broken off from a rank whose journal is lost.
//
// Thread-safety: Reserve, Append, BeginSegment and RemoveSegmentsBefore are called by one thread;
// WriteQueued, WriteMark and WaitForWork by one thread, which may be another. Anything else, by any thread.
// The callbacks run in the thread that calls WriteQueued or Append, without locks held.
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

// A record that the disk has no space for may be taken after so long: each Reserve tries again, and the code
// that makes room, as a checkpoint does that lets old segments go, tells no caller.
inline constexpr std::chrono::milliseconds kRetryOnFullDisk{5000};

struct JournalOptions {
  std::string folder;  // of all ranks' journals; its parent is there
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  std::uint64_t instance = 0;  // not 0
  std::uint64_t lineage = 0;
  std::uint64_t seed = 0;  // of the hashes: secret to clients, drawn at random, a rank's own or all ranks'
  // As the reader's JournalSet says. Rounds after follows.round go into this journal.
  JournalPosition follows;
  std::uint64_t reserve_bytes = std::uint64_t{64} << 20;  // the most space that is taken at once
  std::uint64_t segment_bytes = std::uint64_t{1} << 30;  // a segment gets no more records when it has so much
  std::uint64_t max_queued_bytes = std::uint64_t{1} << 30;  // that wait to be written
  std::chrono::milliseconds longest_wait{1000};             // of a Reserve, for a sync
  // A mark is written when no record has come for so long. Each is a sync that the next record may wait for.
  std::chrono::milliseconds mark_after{50};
  // Asked, by the thread that writes, after each sync and before what it made durable is published: whether
  // the folder is still this server's. An error is as one of the sync. Empty: it is.
  std::function<Status()> still_ours = {};
  Threads* threads = &SystemThreads();  // that call the journal
};

// Bytes of a record, and what keeps them where they are until they are written; null if they stay anyway.
struct JournalPiece {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
};

class Journal {
 public:
  struct Callbacks {
    // All rounds up to this one are on disk on this rank.
    std::function<void(std::uint64_t round)> on_durable;
    // A write or a sync failed. Nothing is written any more, and the process must end. Called once.
    std::function<void(const std::string& reason)> on_failure;
  };

  // Makes the rank's folder and its first segment, and returns when they are on disk. `files` must outlive
  // the journal. INVALID_ARGUMENT, or what `files` says.
  static Result<std::unique_ptr<Journal>> Start(FileSystem& files, const JournalOptions& options,
                                                Callbacks callbacks);

  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // Takes space, so that the next record can be written if its body has at most so many bytes; or several
  // records, if `body_bytes` is of all their bodies and 72 more for each but one. It holds until the next
  // Reserve or BeginSegment. May wait for a sync that is under way, for JournalOptions::longest_wait at most.
  // RESOURCE_EXHAUSTED: the disk is full, with a time to try again, or the record would be larger than any
  // may be. UNAVAILABLE: max_queued_bytes wait to be written (a record that is larger than that alone is
  // taken when nothing waits), the sync takes longer, or the journal has failed. INTERNAL: there can be no
  // new file. After an error nothing has changed, and a later Reserve may succeed.
  Status Reserve(std::uint64_t body_bytes);

  // Queues a record. If no space was reserved for it, and there is none, the journal fails. After a failure,
  // does nothing. REQUIRES: `round` is above all before it, and above 0; the pieces are at most
  // kMaxRecordBytes together.
  void Append(std::uint64_t round, std::uint32_t kind, std::vector<JournalPiece> pieces);

  // Lets the records from that round on go to a new segment, which the next Reserve makes; a record for which
  // space was reserved before goes where that is. REQUIRES: `first_round` is above the last appended one.
  // Nothing happens if the newest segment has no records.
  void BeginSegment(std::uint64_t first_round);

  // Removes what is not needed if all rounds up to that one are in a checkpoint: this rank's segments, except
  // the newest, whose records all count to them, and all segments of earlier server instances whose rounds
  // count to them, of this rank's folder and those of ranks that are no more. After an error, some may have
  // been removed.
  Status RemoveSegmentsBefore(std::uint64_t round);

  // Says that all ranks have all rounds up to this one on disk; later records carry it, so that recovery sees
  // if another rank's journal has lost its end.
  void NoteComplete(std::uint64_t round);

  // Writes and syncs what was queued, and publishes it. Returns whether anything was queued.
  bool WriteQueued();

  // Writes and syncs a mark behind the last record, if all ranks are known to have more on disk than the
  // records and the mark before say. Does nothing if there is no space for it that was taken before.
  void WriteMark();

  // What the thread that writes has to do. kMark: nothing is queued, and a mark is due. kStop: nothing is
  // queued, and StopWaiting was called.
  enum class Work : std::uint8_t { kWrite, kMark, kStop };
  Work WaitForWork();
  void StopWaiting();

  // The last round that is on disk on this rank.
  std::uint64_t durable() const { return durable_.load(std::memory_order_acquire); }
  // Of records that wait to be written, or are being written.
  std::uint64_t queued_bytes() const { return queued_bytes_.load(std::memory_order_relaxed); }
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  // The last Reserve got no space of the disk, or no new file.
  bool blocked() const { return blocked_.load(std::memory_order_relaxed); }
  // Any thread.
  JournalStats Stats() const;

 private:
  struct Segment;
  struct Record;

  Journal(FileSystem& files, JournalOptions options, Callbacks callbacks);

  std::string RankPath(std::uint32_t rank) const;
  Status MakeFirstSegment();
  // Makes a file for a segment, and takes its first space. If space fails the file stays, for the next try.
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
  std::deque<std::shared_ptr<Segment>> segments_;  // oldest first; records are appended to the last
  std::shared_ptr<Segment> spare_;                 // a file that could not get space
  std::uint64_t appended_;                         // the last round
  std::optional<std::uint64_t> begin_;             // BeginSegment was called
  bool removed_earlier_ = false;                   // segments of earlier server instances

  std::shared_ptr<Segment> written_;  // the segment that was written to last; the writing thread's

  std::mutex mutex_;  // of queue_, rests_ and stopping_
  std::condition_variable work_;
  std::vector<Record> queue_;
  bool rests_ = false;  // the writing thread waits, and not only for so long
  bool stopping_ = false;

  std::atomic<std::uint64_t> durable_;
  std::atomic<std::uint64_t> complete_;
  std::uint64_t marked_;  // the last complete round that the disk has word of; the writing thread's
  std::atomic<std::uint64_t> queued_bytes_ = 0;
  std::atomic<bool> failed_ = false;
  std::atomic<bool> blocked_ = false;
  JournalCounters counters_;
  std::atomic<bool> sync_is_slow_ = false;  // a Reserve has waited for the one that is under way, in vain
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_JOURNAL_H_
