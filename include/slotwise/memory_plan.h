// A MemoryPlan divides a rank's share of its host's memory between the memory that the server promises its
// callers (for requests, rounds, ledger and so on) and tables. The server starts by the plan, and
// `slotwise-ctl plan` shows it beforehand. docs/config.md#memory describes it.
//
// The factors below bound the memory that the code takes; tests/e2e/test_full_memory.py checks a real server.
// Thread-safety: constants and pure functions.
#ifndef SLOTWISE_MEMORY_PLAN_H_
#define SLOTWISE_MEMORY_PLAN_H_

#include <algorithm>
#include <bit>
#include <cstdint>

#include "slotwise/sizing.h"

namespace slotwise::sizing {

// The limits that take memory, as the configuration has them: in MiB, except connections and calls. 0 if not
// set.
struct MemoryLimits {
  std::uint64_t message = 0;        // limits.max_message_mib
  std::uint64_t round = 0;          // limits.max_round_mib
  std::uint64_t queue = 0;          // limits.max_queue_mib
  std::uint64_t shared = 0;         // limits.max_shared_mib
  std::uint64_t ledger = 0;         // limits.max_ledger_mib
  std::uint64_t evicted = 0;        // limits.max_evicted_mib
  std::uint64_t connections = 0;    // limits.max_connections
  std::uint64_t calls = 0;          // limits.max_calls
  std::uint64_t copy_on_write = 0;  // durability.max_copy_on_write_mib

  friend constexpr bool operator==(const MemoryLimits&, const MemoryLimits&) = default;
};

// The memory that a rank has, and the uses that the rank has for memory.
struct MemoryAsked {
  std::uint64_t host_mib = 0;    // its even share of its host's memory
  std::uint64_t device_mib = 0;  // its GPU's memory; on the CPU backend the host's is the device's
  bool gpu = false;
  bool several_ranks = false;        // whether the server has several ranks
  bool keeps = false;                // whether the server has a data folder
  bool journals = false;             // whether it journals in that folder
  std::uint64_t least_calls = 1024;  // four times limits.max_calls_per_connection
  MemoryLimits set = {};             // the limits that the configuration sets
};

// The parts of a rank's share of its host's memory, in MiB, that are set aside before tables may take any.
struct SetAside {
  std::uint64_t process = 0;   // the program, its libraries, threads, connections and open calls
  std::uint64_t requests = 0;  // requests, replies, and memory kept for both
  std::uint64_t received = 0;  // bytes that gRPC and the data transport received, not read yet
  std::uint64_t shared = 0;    // memory that is shared with clients on the host
  std::uint64_t exports = 0;
  std::uint64_t rounds = 0;  // arrays and scratch of the largest round
  std::uint64_t ledger = 0;
  std::uint64_t evicted = 0;     // the keys that evictions and sweeps have removed
  std::uint64_t checkpoint = 0;  // buffers, rows that change meanwhile, and the journal's queue
  std::uint64_t spare = 0;       // memory that malloc keeps, and that other processes take

  constexpr std::uint64_t all() const {
    return process + requests + received + shared + exports + rounds + ledger + evicted + checkpoint + spare;
  }
};

struct MemoryPlan {
  MemoryLimits limits = {};  // all of them set
  SetAside aside = {};
  std::uint64_t tables_mib = 0;  // on the CPU backend: the most that is left for tables
  bool fits = false;             // false if the limits that are set promise more than there is
};

inline constexpr std::uint64_t kCpuProcessMib = 64;
inline constexpr std::uint64_t kGpuProcessMib = 1024;  // CUDA's and NCCL's memory, most of it
inline constexpr std::uint64_t kConnectionKib = 32;
// gRPC takes kCallKib for an open call with some 50 fields of metadata, beside its message. With as many
// fields as there may be, a call takes up to 50 KiB; the difference comes out of `spare`.
inline constexpr std::uint64_t kCallKib = 20;
// The arrays and the scratch of a round take as much as kRoundsAtWork rounds. The batch that takes most,
// relative to the bytes that it counts as, has one weighted key a bag and 5 elements a row. It counts as 36
// bytes a key, and a key takes
// - 72 bytes of arrays, in its callers' order and in the step's,
// - 147 bytes to find, count, sort and group,
// - and an eighth ahead of both.
// Measured, with request and reply: up to 6 rounds on one rank, and 7.2 on each of two.
inline constexpr std::uint64_t kRoundsAtWork = 7;
inline constexpr std::uint64_t kRoundsAtWorkOfSeveralRanks = 9;  // bags travel
inline constexpr std::uint64_t kRoundsStagedForGpu = 4;  // two rounds on their way there, half as much ahead
inline constexpr std::uint64_t kCheckpointMib = 24;      // buffers, and lists of some cells
// A 16th of the memory is spare, but no more than this.
inline constexpr std::uint64_t kMostSpareMib = 512;
// A row takes these bytes in an export's list of keys; with a data folder also in a checkpoint's lists.
inline constexpr std::uint64_t kListedBytes = 8;
inline constexpr std::uint64_t kListedBytesKeeping = 40;

// Returns the most MiB that wait to be written to a journal, with a request queue of `queue` MiB.
constexpr std::uint64_t JournalMib(std::uint64_t queue) { return std::min<std::uint64_t>(queue, 1024); }

// Returns the memory that `limits`, all of which are set, promise.
constexpr SetAside SetAsideFor(const MemoryAsked& asked, const MemoryLimits& limits) {
  SetAside aside;
  aside.process = (asked.gpu ? kGpuProcessMib : kCpuProcessMib) +
                  DivideUp(limits.connections * kConnectionKib + limits.calls * kCallKib, 1024);
  // The favoured step may exceed the request queue by as much again and a round, and small messages by a
  // 16th. Kept memory, with the memory in use, is within a request queue and two rounds. Arrays of the pool
  // are up to an 8th larger.
  const std::uint64_t in_use = 2 * limits.queue + limits.round + DivideUp(limits.queue, 16);
  aside.requests = DivideUp(9 * std::max(in_use, limits.queue + 2 * limits.round), 8);
  aside.received = 2 * std::max(2 * limits.queue, 4 * limits.message);
  if (!asked.gpu) aside.shared = limits.shared;
  aside.exports = DivideUp(limits.queue, 4);
  aside.rounds = limits.round * (asked.gpu             ? kRoundsStagedForGpu
                                 : asked.several_ranks ? kRoundsAtWorkOfSeveralRanks
                                                       : kRoundsAtWork);
  aside.ledger = limits.ledger;
  aside.evicted = limits.evicted;
  if (asked.keeps)
    aside.checkpoint =
        (asked.gpu ? 2 : 1) * kCheckpointMib + (asked.gpu ? 0 : DivideUp(9 * limits.copy_on_write, 8));
  if (asked.journals) aside.checkpoint += JournalMib(limits.queue);
  aside.spare = std::min(DivideUp(asked.host_mib, 16), kMostSpareMib);
  return aside;
}

// The defaults where there is plenty of memory.
inline constexpr MemoryLimits kPlenty{.message = 64,
                                      .round = 512,  // or more
                                      .queue = 1024,
                                      .shared = 0,  // the same as the request queue
                                      .ledger = 256,
                                      .evicted = 16,
                                      .connections = 4096,
                                      .calls = 16'384,
                                      .copy_on_write = 256};
inline constexpr std::uint64_t kMostRoundMib = 4096;

// Returns the default of limits.max_round_mib where there is plenty of memory.
constexpr std::uint64_t PlentifulRoundMib(const MemoryAsked& asked) {
  return std::clamp(std::min(asked.device_mib / 64, asked.host_mib / 32), kPlenty.round, kMostRoundMib);
}

// Returns the limits, with defaults that go with a default round of `round` MiB. The defaults are the
// documented ones for the round of a host with plenty of memory, and shrink with the round.
constexpr MemoryLimits LimitsFor(const MemoryAsked& asked, std::uint64_t round) {
  MemoryLimits limits = asked.set;
  if (limits.round == 0) limits.round = round;
  if (limits.message == 0) {
    limits.message = std::min(kPlenty.message, round);
    if (limits.queue > 0) limits.message = std::min(limits.message, limits.queue);
  }
  if (limits.queue == 0) {
    const std::uint64_t plenty = std::max(2 * limits.round, kPlenty.queue);
    limits.queue = round == PlentifulRoundMib(asked) ? plenty : std::min(plenty, 2 * round);
    limits.queue = std::max(limits.queue, limits.message);
  }
  if (limits.shared == 0) limits.shared = limits.queue;
  if (limits.ledger == 0) limits.ledger = std::min(kPlenty.ledger, round);
  if (limits.evicted == 0) limits.evicted = std::min(kPlenty.evicted, round);
  if (limits.connections == 0) limits.connections = std::min(kPlenty.connections, 64 * round);
  if (limits.calls == 0) limits.calls = std::max(asked.least_calls, std::min(kPlenty.calls, 64 * round));
  if (limits.copy_on_write == 0) limits.copy_on_write = std::min(kPlenty.copy_on_write, round);
  return limits;
}

// Returns the largest round, at most `most`, with which at most `memory` MiB are set aside; 0: none.
constexpr std::uint64_t LargestRoundWithin(const MemoryAsked& asked, std::uint64_t most,
                                           std::uint64_t memory) {
  std::uint64_t fits = 0;
  for (std::uint64_t step = std::bit_floor(most); step > 0; step /= 2) {
    const std::uint64_t round = fits + step;
    if (round <= most && SetAsideFor(asked, LimitsFor(asked, round)).all() <= memory) fits = round;
  }
  return fits;
}

// Divides the memory. Defaults shrink until half of it is left for tables (CPU backend). Where that is
// impossible, because of limits that are set or a small host, defaults are those of a round of 4 MiB, or
// smaller ones: a 16th is always left.
constexpr MemoryPlan PlanMemory(const MemoryAsked& asked) {
  constexpr std::uint64_t kUsefulRoundMib = 4;
  const std::uint64_t most = asked.host_mib - asked.host_mib / 16;
  const std::uint64_t plenty = PlentifulRoundMib(asked);
  std::uint64_t round = LargestRoundWithin(asked, plenty, asked.gpu ? most : asked.host_mib / 2);
  if (round == 0) round = LargestRoundWithin(asked, kUsefulRoundMib, most);
  MemoryPlan plan;
  plan.fits = round > 0;
  plan.limits = LimitsFor(asked, std::max<std::uint64_t>(round, 1));
  plan.aside = SetAsideFor(asked, plan.limits);
  if (!asked.gpu) plan.tables_mib = asked.host_mib - std::min(asked.host_mib, plan.aside.all());
  return plan;
}

}  // namespace slotwise::sizing

#endif  // SLOTWISE_MEMORY_PLAN_H_
