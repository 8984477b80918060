// A RankAddress says where a client finds a rank.
// Thread-safety: plain values.
#ifndef SLOTWISE_CLIENT_CPP_RANK_ADDRESS_H_
#define SLOTWISE_CLIENT_CPP_RANK_ADDRESS_H_

#include <string>

namespace slotwise::client {

struct RankAddress {
  std::string address;      // host:port
  std::string local = {};   // its Unix socket, if this is its host (RankInfo.local); empty: not to be used
  bool only_local = false;  // lookups and pushes go by shared memory, or fail

  bool operator==(const RankAddress&) const = default;
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_RANK_ADDRESS_H_
