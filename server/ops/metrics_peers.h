// MetricsPeers reads the metrics of all ranks of a server, so that any rank can report the whole server. Each
// rank serves its own metrics; ranks know each other by a token that only they have.
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
  // A rank that does not answer within about this time counts as silent.
  static constexpr std::chrono::milliseconds kTimeout{2000};
  // The most readings at a time. Each waits for the other ranks' HTTP ports, which answer few requests at
  // once. If readings could take all places of a port, ranks would wait for each other.
  static constexpr int kMostAtOnce = 4;

  // `token` is the same on all ranks of this server instance.
  explicit MetricsPeers(std::string token) : token_(std::move(token)) {}

  // Sets the addresses of the ranks' metrics, host:port by rank. This rank's own address is not used.
  void Set(std::uint32_t mine, std::vector<std::string> addresses);

  // Returns whether a request's `authorization` field has the ranks' token, in a time that does not depend on
  // how much of the token is right.
  bool Knows(std::string_view authorization) const;

  // Returns every rank's metrics, in rank order; `own` are this rank's. UNAVAILABLE: a rank does not answer
  // (the message names the first), kMostAtOnce readings are under way, or Set was not called.
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
