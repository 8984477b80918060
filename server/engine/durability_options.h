// DurabilityOptions: which state of a server survives a restart or crash, and how it is stored.
// Thread-safety: plain values.
#ifndef SLOTWISE_SERVER_ENGINE_DURABILITY_OPTIONS_H_
#define SLOTWISE_SERVER_ENGINE_DURABILITY_OPTIONS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "server/durability/file_system.h"
#include "server/durability/threads.h"
#include "server/engine/clock.h"

namespace slotwise {

// What a crash may do to acknowledged updates.
enum class DurabilityMode : std::uint8_t {
  kNone,      // a crash loses all updates since the last checkpoint
  kInterval,  // a crash loses at most the updates of the last seconds
  kSync,      // a crash loses none
};

// Equal on every rank, but for functions.
struct DurabilityOptions {
  DurabilityMode mode = DurabilityMode::kNone;
  std::string folder;  // shared by all ranks; empty: nothing is kept
  // kInterval: acknowledged updates are in a checkpoint within this time.
  std::chrono::seconds interval{30};
  // The period of checkpoints, if something has changed; 0: only on request. With kInterval, the period is
  // half of `interval`.
  std::chrono::seconds checkpoint_every{0};
  // kInterval and kSync: whether callers may save rounded rows, from which a restart then goes on.
  bool rounded_checkpoints = false;
  std::size_t keep = 2;         // chains of checkpoints
  std::size_t max_deltas = 16;  // in a chain; then a base follows
  // Keys of a table that may be erased on a rank between two checkpoints. After more, a base follows.
  std::uint64_t max_erased = std::uint64_t{4} << 20;
  // Device memory of a rank for rows that change while a checkpoint is written.
  std::uint64_t max_copy_on_write_bytes = std::uint64_t{256} << 20;
  // A round, and all requests behind it, wait no longer than this for a disk that is slow to take a
  // checkpoint's rows; then the checkpoint is given up.
  static constexpr std::chrono::milliseconds kLongestStall{2000};
  std::chrono::milliseconds longest_stall = kLongestStall;
  // The size of each of a rank's three buffers of host memory, through which rows pass to a checkpoint's
  // files. A server without a GPU takes less.
  std::size_t checkpoint_buffer_bytes = std::size_t{16} << 20;
  // A journal takes disk space in pieces of journal_reserve_bytes, and a new file past journal_segment_bytes.
  std::uint64_t journal_reserve_bytes = std::uint64_t{64} << 20;
  std::uint64_t journal_segment_bytes = std::uint64_t{1} << 30;
  std::uint64_t journal_queued_bytes = std::uint64_t{1} << 30;  // most bytes that wait for the disk
  std::string server_version = "0";
  // Tells the time, for the age of a checkpoint that another process made.
  std::function<std::uint64_t()> unix_time = &UnixTime;
  FileSystem* files = &SystemFiles();
  Threads* threads = &SystemThreads();  // for journal and checkpoints
  // Returns OK, or why the folder may be another server's by now; for any thread. Empty: the folder cannot be
  // taken over, or another rank watches it. Rank 0 takes part in every acknowledgement, and calls this before
  // its written data counts.
  std::function<Status()> still_ours = {};
  // Called by a thread of the journal or the checkpoints, with the reason why they cannot go on. The process
  // has to end, because the state on disk, or its owner, is unknown.
  std::function<void(const std::string& why)> on_failure = {};
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_DURABILITY_OPTIONS_H_
