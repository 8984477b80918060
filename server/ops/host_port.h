// Splits "host:port" into host and port.
// Thread-safety: free functions.
#ifndef SLOTWISE_SERVER_OPS_HOST_PORT_H_
#define SLOTWISE_SERVER_OPS_HOST_PORT_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "slotwise/status.h"

namespace slotwise {

struct HostPort {
  std::string host;  // an IPv6 address keeps its brackets
  std::uint16_t port = 0;

  std::string str() const { return host + ":" + std::to_string(port); }
};

// Parses host:port with a port of 0 (any free port) to 65535: "0.0.0.0:7070", "[::1]:7070". INVALID_ARGUMENT
// for any other text.
Result<HostPort> ParseHostPort(std::string_view text);

// Returns `text` in quotes, with every byte that is not printable ASCII written as \x..
std::string QuotedHost(std::string_view text);

// Returns whether `host` means all addresses of a machine: 0.0.0.0 or [::].
bool IsWildcard(std::string_view host);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_OPS_HOST_PORT_H_
