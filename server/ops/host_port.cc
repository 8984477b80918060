#include "server/ops/host_port.h"

#include <algorithm>
#include <charconv>

namespace slotwise {
namespace {

// DNS allows names of up to 253 characters. This includes the brackets of an IPv6 address.
constexpr std::size_t kMaxHost = 253;

bool IsHost(std::string_view host) {
  if (host.empty() || host.size() > kMaxHost) return false;
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const std::string_view inside = bracketed ? host.substr(1, host.size() - 2) : host;
  // Names and addresses are printable ASCII; a name in another script has an ASCII form.
  if (std::ranges::any_of(inside, [](char c) { return c <= ' ' || c > '~'; })) return false;
  return inside.find_first_of(bracketed ? "[]/" : "[]:/") == std::string_view::npos;
}

}  // namespace

Result<HostPort> ParseHostPort(std::string_view text) {
  const auto refusal = [text] {
    return InvalidArgument(QuotedHost(text) + " is not host:port with a port of 0 to 65535");
  };
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || !IsHost(text.substr(0, colon))) return refusal();

  const std::string_view digits = text.substr(colon + 1);
  HostPort result{.host = std::string(text.substr(0, colon))};
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), result.port);
  if (error != std::errc() || end != digits.data() + digits.size()) return refusal();
  return result;
}

std::string QuotedHost(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string quoted = "\"";
  for (const char c : text) {
    if (c >= ' ' && c <= '~') {
      quoted += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    quoted.append("\\x").append(1, kDigits[byte >> 4]).append(1, kDigits[byte & 15]);
  }
  return quoted + '"';
}

bool IsWildcard(std::string_view host) { return host == "0.0.0.0" || host == "[::]"; }

}  // namespace slotwise
