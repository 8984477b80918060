// MetricsPeers reads the metrics of a server's ranks, of which each serves its own, so that any rank can say
// what the server does. Ranks know each other by a token that only they share.
// Thread-safety: safe from any thread.
#ifndef SLOTWISE_SERVER_OPS_METRICS_PEERS_H_
#define SLOTWISE_SERVER_OPS_METRICS_PEERS_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "slotwise/status.h"

namespace slotwise {

class MetricsPeers {
 public:
  // A rank that does not answer within about this time is said not to.
  static constexpr std::chrono::milliseconds kTimeout{2000};
  // So many readings go on at once. Each waits for the other ranks' HTTP ports, which answer few at once: if
  // readings could take all of a port's places, ranks would wait for each other.
  static constexpr int kMostAtOnce = 4;

  // `token` is what all ranks of this start of the server have.
  explicit MetricsPeers(std::string token) : token_(std::move(token)) {}

  // Sets where the ranks' metrics are, host:port by rank; this rank's own is not used.
  void Set(std::uint32_t mine, std::vector<std::string> addresses);

  // Returns whether the field `authorization` of a request has the ranks' token. Takes a time that does not
  // depend on how much of it is right.
  bool Knows(std::string_view authorization) const;

  // Returns every rank's metrics, in rank order, of which `own` are this rank's. UNAVAILABLE, with the first
  // rank that does not answer, beyond kMostAtOnce, or before Set.
  Result<std::vector<std::string>> ReadAll(std::string own) const;

 private:
  const std::string token_;
  mutable std::atomic<int> readings_ = 0;
  mutable std::mutex mutex_;
  std::uint32_t mine_ = 0;              // guarded by mutex_
  std::vector<std::string> addresses_;  // guarded by mutex_
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_OPS_METRICS_PEERS_H_
