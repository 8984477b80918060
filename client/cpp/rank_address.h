// A RankAddress tells a client how to reach a rank.
// Thread-safety: plain values.
#ifndef SLOTWISE_CLIENT_CPP_RANK_ADDRESS_H_
#define SLOTWISE_CLIENT_CPP_RANK_ADDRESS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace slotwise::client {

// RankInfo.gpu of a rank whose device memory is the host's memory.
inline constexpr std::string_view kHostMemory = "host";

struct RankAddress {
  std::string address;     // host:port
  std::string local = {};  // its Unix socket on this host (RankInfo.local); empty: not used
  bool data = false;       // lookups and pushes go by the data transport
  // If set, requests go by `local` alone, and only to a process of this user: the server asks for a token.
  std::optional<std::uint32_t> only_user = std::nullopt;
  bool shares_host = true;     // `local` may share the host's memory
  bool only_local = false;     // lookups and pushes go by shared memory of the host, or fail
  std::string gpu = {};        // its device's memory (RankInfo.gpu); empty: not used
  bool by_gpu = false;         // this connection goes by the device's memory
  bool only_gpu = false;       // the client uses no other way, and waits for a rank that is away
  bool gives_reasons = false;  // the server gives every refusal a reason (errors.proto)

  bool operator==(const RankAddress&) const = default;
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_RANK_ADDRESS_H_
