// A Topology tells clients the server's ranks and their addresses.
// Thread-safety: plain values.
#ifndef SLOTWISE_SERVER_RPC_TOPOLOGY_H_
#define SLOTWISE_SERVER_RPC_TOPOLOGY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "slotwise/types.h"

namespace slotwise {

struct RankPlace {
  std::string address;           // host:port for clients
  std::string device;            // "cpu", or "cuda" and the device's name
  std::string local = {};        // the Unix socket, as in RankInfo.local
  std::string gpu = {};          // as in RankInfo.gpu
  std::uint32_t local_user = 0;  // as in RankInfo.local_user
  std::string metrics = {};      // host:port of its metrics; empty: not served
};

// The limits for clients' requests, in bytes; admin.proto tells how a request's bytes are counted.
struct RequestLimits {
  std::uint64_t max_message_bytes = 0;
  std::uint64_t max_round_bytes = 0;
  std::uint32_t data_version = 0;  // of the data transport; 0: not spoken at the port
};

struct Topology {
  std::string version;
  std::vector<RankPlace> ranks;  // in rank order
  Rank rank{0};                  // the rank that answers
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_RPC_TOPOLOGY_H_
