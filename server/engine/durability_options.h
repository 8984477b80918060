// DurabilityOptions: what of a server outlives it.
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

// What an acknowledged update survives.
enum class DurabilityMode : std::uint8_t {
  kNone,      // nothing but a stop of the server: what a checkpoint has
  kInterval,  // a crash loses the updates of the last seconds at most
  kSync,      // a crash loses none
};

// Equal on every rank, but for functions.
struct DurabilityOptions {
  DurabilityMode mode = DurabilityMode::kNone;
  std::string folder;  // that all ranks see; empty: nothing is kept
  // kInterval: acknowledged updates are in a checkpoint after so long.
  std::chrono::seconds interval{30};
  // A checkpoint is made this often, if something has changed; 0: only if somebody asks. kInterval makes one
  // every half of `interval`.
  std::chrono::seconds checkpoint_every{0};
  // kInterval and kSync: whether callers may save rounded rows, which a restart takes for the exact ones.
  bool rounded_checkpoints = false;
  std::size_t keep = 2;         // chains of checkpoints
  std::size_t max_deltas = 16;  // of a chain; then a base follows
  // Of a table on a rank: keys that are erased between two checkpoints. Past it, the next one is a base.
  std::uint64_t max_erased = std::uint64_t{4} << 20;
  // Of all tables on a rank: device memory for rows that change while a checkpoint is written.
  std::uint64_t max_copy_on_write_bytes = std::uint64_t{256} << 20;
  // A round waits no longer than this for a disk that takes a checkpoint's rows slowly; then the checkpoint
  // is given up. All other requests wait for the round.
  static constexpr std::chrono::milliseconds kLongestStall{2000};
  std::chrono::milliseconds longest_stall = kLongestStall;
  // On a rank, three of them: host memory through which rows pass to a checkpoint's files. A server without a
  // GPU takes less.
  std::size_t checkpoint_buffer_bytes = std::size_t{16} << 20;
  // Of a rank's journal: the space that is taken at once, and the size past which a new file begins.
  std::uint64_t journal_reserve_bytes = std::uint64_t{64} << 20;
  std::uint64_t journal_segment_bytes = std::uint64_t{1} << 30;
  std::uint64_t journal_queued_bytes = std::uint64_t{1} << 30;  // that wait for the disk, at most
  std::string server_version = "0";
  // Says how old a checkpoint is that another process made.
  std::function<std::uint64_t()> unix_time = &UnixTime;
  FileSystem* files = &SystemFiles();
  Threads* threads = &SystemThreads();  // that write the journal, and checkpoints
  // OK, or why the folder may be another server's by now; for any thread. Empty: it cannot be taken, or
  // another rank watches it. Rank 0's, which is in every acknowledgement: it asks before what it has written
  // counts.
  std::function<Status()> still_ours = {};
  // Is told why the journal or checkpoints cannot go on, on a thread of theirs. The process has to end:
  // it is unknown what is on disk, or whose it is.
  std::function<void(const std::string& why)> on_failure = {};
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_DURABILITY_OPTIONS_H_
