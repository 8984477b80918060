#include "server/intake/quoted.h"

namespace slotwise {
namespace {

constexpr std::size_t kMaxQuoted = 80;

}  // namespace

std::string Quoted(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string quoted = "\"";
  for (const char c : text.substr(0, kMaxQuoted)) {
    if (c >= ' ' && c <= '~' && c != '"' && c != '\\') {
      quoted += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    quoted.append("\\x").append(1, kDigits[byte >> 4]).append(1, kDigits[byte & 15]);
  }
  return quoted + (text.size() > kMaxQuoted ? "...\"" : "\"");
}

}  // namespace slotwise
