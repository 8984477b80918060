// RankStats is what a rank counts of its lookups and pushes: how many there were, how long they took, and
// where the time went.
//
// Counts begin at 0 when a rank starts and only grow, so what happened in an interval is the difference of
// two readings (RankStats::Since). Times are in nanoseconds, by the rank's own clock. A call's stages follow
// each other, and together they are the call's time.
// Thread-safety: plain values and a free function.
#ifndef SLOTWISE_SERVER_STATS_H_
#define SLOTWISE_SERVER_STATS_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace slotwise {

// A CallStage is what a call is at. A call that has no part in a stage (a journal that is not kept) is not
// counted there.
enum class CallStage : std::uint8_t {
  kDecode,    // its bytes are there, and become checked requests
  kQueue,     // its requests wait for a round, and a push for the other parts of its step
  kRound,     // the rank works on its rounds, or waits for its device
  kExchange,  // meanwhile the rank waits for other ranks in collectives
  kJournal,   // its step is applied, and is not on every rank's disk yet
  kEncode,    // its reply is made
  kSend,      // its reply has not all been given to the operating system
};
inline constexpr std::size_t kCallStages = 7;

// Returns the stage's name: "decode".
std::string_view ToString(CallStage stage);

// How many calls took how long: a histogram with four buckets for each power of two.
struct DurationStats {
  // Buckets 0 to 3 count durations of so many nanoseconds; bucket b those from (4 + b % 4) << (b / 4 - 1) up
  // to the next one's; the last bucket all that are longer than 4.2 hours, too.
  static constexpr std::size_t kBuckets = 172;
  static constexpr std::size_t BucketOf(std::uint64_t ns) {
    if (ns < 4) return ns;
    const auto width = static_cast<std::size_t>(std::bit_width(ns));
    return std::min(4 * (width - 2) + ((ns >> (width - 3)) & 3), kBuckets - 1);
  }
  // Returns the shortest duration of a bucket, in nanoseconds.
  static constexpr std::uint64_t FirstOf(std::size_t bucket) {
    return bucket < 4 ? bucket : std::uint64_t{4 + bucket % 4} << (bucket / 4 - 1);
  }

  std::uint64_t sum_ns = 0;
  std::vector<std::uint64_t> buckets = {};  // those that follow the last one are 0

  std::uint64_t count() const;
  // Returns the mean in nanoseconds; 0 if nothing is counted.
  double Mean() const;
  // Returns the duration, in nanoseconds, that a share `q` (0 .. 1) of what is counted did not exceed, to
  // within a quarter; 0 if nothing is counted.
  double Quantile(double q) const;
  void Add(const DurationStats& more);
  friend bool operator==(const DurationStats&, const DurationStats&) = default;
};

inline constexpr std::string_view kBusyRefusals = "BUSY";

// Lookups, or pushes. A call of several tables counts as one.
struct CallStats {
  std::uint64_t calls = 0;    // that were answered OK
  std::uint64_t samples = 0;  // of those calls, of each of their tables
  std::uint64_t keys = 0;     // of those calls
  // Of all calls' messages and their replies: gRPC's messages, or the data transport's heads and bodies.
  std::uint64_t bytes_in = 0;
  std::uint64_t bytes_out = 0;
  // Calls that were refused, by the code's name; kBusyRefusals: RESOURCE_EXHAUSTED with a time to try again.
  // After that and "UNAVAILABLE" clients try again.
  std::map<std::string, std::uint64_t> refusals = {};
  // Of the calls that were answered OK, from when their bytes were there until their replies were with the
  // operating system.
  DurationStats latency = {};
  std::array<DurationStats, kCallStages> stages = {};  // by CallStage

  const DurationStats& operator[](CallStage stage) const { return stages[static_cast<std::size_t>(stage)]; }
  std::uint64_t refused() const;
  void Add(const CallStats& more);
  friend bool operator==(const CallStats&, const CallStats&) = default;
};

// RankStats is what one rank says of itself.
struct RankStats {
  std::uint32_t rank = 0;
  std::uint64_t instance = 0;   // drawn when the server started
  std::uint64_t started = 0;    // seconds since 1970, by the rank's clock
  std::uint64_t uptime_ns = 0;  // what the counts are of
  CallStats lookups = {};
  CallStats pushes = {};
  std::uint64_t rounds = 0;  // that the rank took part in, of all operations

  // As of now:
  std::uint64_t calls_under_way = 0;   // of all kinds
  std::uint64_t queued_requests = 0;   // that wait to be announced to the other ranks
  std::uint64_t pending_requests = 0;  // that were, and have no answer yet
  std::uint64_t queue_bytes = 0;       // of requests and replies
  std::uint64_t max_queue_bytes = 0;
  std::uint64_t received_bytes = 0;  // over the data transport, of calls whose requests are not made yet
  std::uint64_t max_received_bytes = 0;
  std::uint64_t shared_bytes = 0;  // of memory that clients of the rank's host have
  std::uint64_t max_shared_bytes = 0;
  std::uint64_t gpu_shared_bytes = 0;  // the same of the rank's device, until clients' processes are gone
  std::uint64_t max_gpu_shared_bytes = 0;
  std::uint64_t data_connections = 0;  // of the data transport
  std::uint64_t busy_ns = 0;           // for how long the engine has been at the same round

  // Returns what was counted after `before`, an earlier reading of the same rank; uptime_ns is then the time
  // between the two. If the rank was started again since, or `before` is none, that is all that was counted.
  RankStats Since(const RankStats& before) const;
  friend bool operator==(const RankStats&, const RankStats&) = default;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_STATS_H_
