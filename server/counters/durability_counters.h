// What a rank counts of its journal and of checkpoints.
// Thread-safety: each member says who calls it; Read is for any thread, and is of no one instant.
#ifndef SLOTWISE_SERVER_COUNTERS_DURABILITY_COUNTERS_H_
#define SLOTWISE_SERVER_COUNTERS_DURABILITY_COUNTERS_H_

#include <atomic>
#include <chrono>
#include <cstdint>

#include "server/counters/duration_counter.h"
#include "slotwise/server_stats.h"

namespace slotwise {

// A rank's journal. Bytes are of records, with their headers.
struct JournalStats {
  std::uint64_t written_bytes = 0;   // and synced, since the rank started
  std::uint64_t queued_bytes = 0;    // that wait to be written, or are being written
  std::uint64_t appended_round = 0;  // the last that was recorded
  std::uint64_t durable_round = 0;   // the last that is on this rank's disk
  bool failed = false;               // nothing is written any more
  bool blocked = false;              // the last round that was to be recorded got no space, or no new file
  DurationStats syncs = {};          // by the file system
};

class JournalCounters {
 public:
  // By the thread that writes: so many bytes are on the disk, of which the sync took so long.
  void CountSync(std::uint64_t bytes, std::chrono::nanoseconds duration) {
    written_bytes_.fetch_add(bytes, std::memory_order_relaxed);
    syncs_.Count(duration);
  }
  // By the thread that appends.
  void NoteAppended(std::uint64_t round) { appended_round_.store(round, std::memory_order_relaxed); }

  // Fills in what is counted here.
  void Read(JournalStats& stats) const;

 private:
  std::atomic<std::uint64_t> written_bytes_ = 0;
  std::atomic<std::uint64_t> appended_round_ = 0;
  DurationCounter syncs_;
};

// Checkpoints since the rank started, and the newest one, of any rank: all ranks count the same.
struct CheckpointStats {
  std::uint64_t written = 0;
  std::uint64_t failed = 0;      // that could not be begun, written or published
  std::uint64_t unreadable = 0;  // that were written, and could not be restored when they were read back
  bool under_way = false;
  std::uint64_t newest_bytes = 0;  // of all ranks' files; 0: there is none
  std::uint64_t newest_rows = 0;
  DurationStats durations = {};  // from the round that began one until it exists
  // How old the state on disk is without the journal, if it differs from the one in memory; else 0. Where
  // there is no checkpoint: how long the folder has been in use.
  std::chrono::nanoseconds age{0};
};

class CheckpointCounters {
 public:
  using SteadyTime = std::chrono::steady_clock::time_point;

  struct Written {
    std::uint64_t bytes = 0;
    std::uint64_t rows = 0;
  };
  // All of these by the engine's thread. There is a folder for checkpoints, whose newest one has the state of
  // that time.
  void Begin(const Written& newest, SteadyTime since);
  // A checkpoint is under way, of the state at that time.
  void NoteBegun(SteadyTime now);
  // It exists; a round that came meanwhile may have changed state.
  void CountWritten(const Written& checkpoint, SteadyTime now);
  void CountFailed();
  void CountUnreadable() { unreadable_.fetch_add(1, std::memory_order_relaxed); }
  void NoteEnded() { under_way_.store(false, std::memory_order_relaxed); }
  // Whether the state in memory has something that the newest checkpoint lacks.
  void NoteChanged(bool changed) { changed_.store(changed, std::memory_order_relaxed); }

  // Whether there is a folder for checkpoints.
  bool on() const { return on_.load(std::memory_order_acquire); }
  CheckpointStats Read(SteadyTime now) const;

 private:
  using Nanoseconds = std::atomic<std::chrono::steady_clock::rep>;

  std::atomic<bool> on_ = false;
  std::atomic<bool> under_way_ = false;
  std::atomic<bool> changed_ = false;
  std::atomic<std::uint64_t> written_ = 0, failed_ = 0, unreadable_ = 0;
  std::atomic<std::uint64_t> newest_bytes_ = 0, newest_rows_ = 0;
  Nanoseconds newest_since_ = 0;  // when the state was of now that the newest checkpoint has
  SteadyTime begun_;              // the engine's thread's
  DurationCounter durations_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_COUNTERS_DURABILITY_COUNTERS_H_
