// A RankAddress says where a client finds a rank.
// Thread-safety: plain values.
#ifndef SLOTWISE_CLIENT_CPP_RANK_ADDRESS_H_
#define SLOTWISE_CLIENT_CPP_RANK_ADDRESS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace slotwise::client {

// RankInfo.gpu of a rank whose device's memory is the host's.
inline constexpr std::string_view kHostMemory = "host";

struct RankAddress {
  std::string address;     // host:port
  std::string local = {};  // its Unix socket, if this is its host (RankInfo.local); empty: not to be used
  bool data = false;       // lookups and pushes go by the data transport
  // Nothing is sent but by `local`, and there to this user's process alone: the server asks who calls.
  std::optional<std::uint32_t> only_user = std::nullopt;
  bool shares_host = true;     // and shares memory of the host there
  bool only_local = false;     // lookups and pushes go by shared memory, or fail
  std::string gpu = {};        // the memory of its device (RankInfo.gpu); empty: not to be used
  bool by_gpu = false;         // what connects there goes by that memory
  bool only_gpu = false;       // nobody goes another way: who is away is waited for
  bool gives_reasons = false;  // every refusal of the server's has a reason (proto/slotwise/v1/errors.proto)

  bool operator==(const RankAddress&) const = default;
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_RANK_ADDRESS_H_
