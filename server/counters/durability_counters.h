// Counters of a rank's journal and of checkpoints.
// Thread-safety: each member names its thread; Read is for any thread, and returns no snapshot.
#ifndef SLOTWISE_SERVER_COUNTERS_DURABILITY_COUNTERS_H_
#define SLOTWISE_SERVER_COUNTERS_DURABILITY_COUNTERS_H_

#include <atomic>
#include <chrono>
#include <cstdint>

#include "server/counters/duration_counter.h"
#include "slotwise/server_stats.h"

namespace slotwise {

// Statistics of a rank's journal. Bytes are those of records with their headers.
struct JournalStats {
  std::uint64_t written_bytes = 0;   // written and synced since the rank started
  std::uint64_t queued_bytes = 0;    // waiting to be written, or being written
  std::uint64_t appended_round = 0;  // the last recorded round
  std::uint64_t durable_round = 0;   // the last round on this rank's disk
  bool failed = false;               // nothing is written any more
  bool blocked = false;              // the last round to be recorded got no space or no new file
  DurationStats syncs = {};          // by the file system
};

class JournalCounters {
 public:
  // Counts bytes that a sync of this duration brought to disk. Called by the thread that writes.
  void CountSync(std::uint64_t bytes, std::chrono::nanoseconds duration) {
    written_bytes_.fetch_add(bytes, std::memory_order_relaxed);
    syncs_.Count(duration);
  }
  // Called by the thread that appends.
  void NoteAppended(std::uint64_t round) { appended_round_.store(round, std::memory_order_relaxed); }

  // Fills in the fields that are counted here.
  void Read(JournalStats& stats) const;

 private:
  std::atomic<std::uint64_t> written_bytes_ = 0;
  std::atomic<std::uint64_t> appended_round_ = 0;
  DurationCounter syncs_;
};

// Statistics of checkpoints since the rank started, and of the newest one; equal on all ranks.
struct CheckpointStats {
  std::uint64_t written = 0;
  std::uint64_t failed = 0;      // not begun, written or published
  std::uint64_t unreadable = 0;  // written, but not restorable when read back
  bool under_way = false;
  std::uint64_t newest_bytes = 0;  // all ranks' files; 0: no checkpoint
  std::uint64_t newest_rows = 0;
  DurationStats durations = {};  // from a checkpoint's first round until it exists
  // The age of the newest checkpoint's state, if the state in memory differs from it; otherwise 0. Without a
  // checkpoint: how long the folder has been in use.
  std::chrono::nanoseconds age{0};
};

class CheckpointCounters {
 public:
  using SteadyTime = std::chrono::steady_clock::time_point;

  struct Written {
    std::uint64_t bytes = 0;
    std::uint64_t rows = 0;
  };
  // The engine's thread calls these. Begin: there is a folder for checkpoints, and the newest one has the
  // state at the time `since`.
  void Begin(const Written& newest, SteadyTime since);
  // Notes that a checkpoint of the state at that time is under way.
  void NoteBegun(SteadyTime now);
  // Notes that the checkpoint exists. Rounds may have changed state since it began.
  void CountWritten(const Written& checkpoint, SteadyTime now);
  void CountFailed();
  void CountUnreadable() { unreadable_.fetch_add(1, std::memory_order_relaxed); }
  void NoteEnded() { under_way_.store(false, std::memory_order_relaxed); }
  // Notes whether the state in memory has changes that the newest checkpoint lacks.
  void NoteChanged(bool changed) { changed_.store(changed, std::memory_order_relaxed); }

  // Returns whether there is a folder for checkpoints.
  bool on() const { return on_.load(std::memory_order_acquire); }
  CheckpointStats Read(SteadyTime now) const;

 private:
  using Nanoseconds = std::atomic<std::chrono::steady_clock::rep>;

  std::atomic<bool> on_ = false;
  std::atomic<bool> under_way_ = false;
  std::atomic<bool> changed_ = false;
  std::atomic<std::uint64_t> written_ = 0, failed_ = 0, unreadable_ = 0;
  std::atomic<std::uint64_t> newest_bytes_ = 0, newest_rows_ = 0;
  Nanoseconds newest_since_ = 0;  // the time of the newest checkpoint's state
  SteadyTime begun_;              // used by the engine's thread
  DurationCounter durations_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_COUNTERS_DURABILITY_COUNTERS_H_
