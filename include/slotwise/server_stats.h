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

// A CallStage is a part of a call's time. A call that does not pass a stage (no journal is kept) is not
// counted there.
enum class CallStage : std::uint8_t {
  kDecode,    // its bytes have come, and become checked requests
  kQueue,     // its requests wait for a round, and a push for the other parts of its step
  kRound,     // the rank works on its rounds, or waits for its device
  kExchange,  // meanwhile the rank waits for other ranks in collectives
  kJournal,   // its step is applied, but is not on every rank's disk yet
  kEncode,    // its reply is made
  kSend,      // its reply has not all been given to the operating system
};
inline constexpr std::size_t kCallStages = 7;

// Returns the stage's name: "decode".
std::string_view ToString(CallStage stage);

// A histogram of how long calls took, with four buckets for each power of two.
struct DurationStats {
  // Buckets 0 to 3 count durations of 0 to 3 nanoseconds; bucket b those from (4 + b % 4) << (b / 4 - 1) up
  // to the next bucket's; the last bucket also counts all that are longer than 4.2 hours.
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
  std::vector<std::uint64_t> buckets = {};  // buckets beyond the last one are 0

  std::uint64_t count() const;
  // Returns the mean in nanoseconds; 0 if nothing is counted.
  double Mean() const;
  // Returns the duration, in nanoseconds, that a share `q` (0 .. 1) of the calls did not exceed, to within a
  // quarter; 0 if nothing is counted.
  double Quantile(double q) const;
  void Add(const DurationStats& more);
  friend bool operator==(const DurationStats&, const DurationStats&) = default;
};

inline constexpr std::string_view kBusyRefusals = "BUSY";

// Counts lookups, or pushes. A call of several tables counts as one.
struct CallStats {
  std::uint64_t calls = 0;    // calls that were answered OK
  std::uint64_t samples = 0;  // the samples of those calls, over all their tables
  std::uint64_t keys = 0;     // the keys of those calls
  // The bytes of all calls' messages and replies: gRPC's messages, or the data transport's heads and bodies.
  std::uint64_t bytes_in = 0;
  std::uint64_t bytes_out = 0;
  // Calls that were refused, by the code's name, or kBusyRefusals for RESOURCE_EXHAUSTED with a time to try
  // again. Clients try again after kBusyRefusals and "UNAVAILABLE".
  std::map<std::string, std::uint64_t> refusals = {};
  // The durations of calls that were answered OK, from when their bytes had come until the operating system
  // had their replies.
  DurationStats latency = {};
  std::array<DurationStats, kCallStages> stages = {};  // by CallStage

  const DurationStats& operator[](CallStage stage) const { return stages[static_cast<std::size_t>(stage)]; }
  std::uint64_t refused() const;
  void Add(const CallStats& more);
  friend bool operator==(const CallStats&, const CallStats&) = default;
};

// RankStats has the counts that one rank reports of itself.
struct RankStats {
  std::uint32_t rank = 0;
  std::uint64_t instance = 0;   // drawn when the server started
  std::uint64_t started = 0;    // seconds since 1970, by the rank's clock
  std::uint64_t uptime_ns = 0;  // the time that the counts cover
  CallStats lookups = {};
  CallStats pushes = {};
  std::uint64_t rounds = 0;  // rounds of all operations that the rank took part in

  // The rank's state now:
  std::uint64_t calls_under_way = 0;   // calls of all kinds that have not ended
  std::uint64_t queued_requests = 0;   // requests that wait to be proposed to the other ranks
  std::uint64_t pending_requests = 0;  // requests that were proposed, and have no answer yet
  std::uint64_t queue_bytes = 0;       // of requests and replies
  std::uint64_t max_queue_bytes = 0;
  std::uint64_t received_bytes = 0;  // bytes of calls over the data transport whose requests are not made yet
  std::uint64_t max_received_bytes = 0;
  std::uint64_t shared_bytes = 0;  // bytes shared with clients on the rank's host
  std::uint64_t max_shared_bytes = 0;
  std::uint64_t gpu_shared_bytes = 0;  // the same of the rank's device, until clients' processes have ended
  std::uint64_t max_gpu_shared_bytes = 0;
  std::uint64_t data_connections = 0;  // connections of the data transport
  std::uint64_t busy_ns = 0;           // for how long the engine has been at the same round

  // Returns what was counted after `before`, an earlier reading of the same rank; uptime_ns is then the time
  // between the two. If the rank was started again since, or `before` is empty, returns all counts.
  RankStats Since(const RankStats& before) const;
  friend bool operator==(const RankStats&, const RankStats&) = default;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_STATS_H_
