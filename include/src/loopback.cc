#include "slotwise/loopback.h"

#include <charconv>
#include <system_error>

namespace slotwise {
namespace {

// Takes a number of 0 to 255, without zeros before it, off `text`. Returns whether there was one.
bool TakeByte(std::string_view& text) {
  unsigned value = 0;
  const char* const end = text.data() + text.size();
  const auto [read, error] = std::from_chars(text.data(), end, value);
  const auto digits = static_cast<std::size_t>(read - text.data());
  if (error != std::errc() || value > 255 || (digits > 1 && text.front() == '0')) return false;
  text.remove_prefix(digits);
  return true;
}

}  // namespace

bool IsLoopback(std::string_view host) {
  if (host == "localhost" || host == "[::1]" || host == "[0:0:0:0:0:0:0:1]") return true;
  if (!host.starts_with("127.")) return false;
  host.remove_prefix(3);
  for (int i = 0; i < 3; ++i) {
    if (!host.starts_with('.')) return false;
    host.remove_prefix(1);
    if (!TakeByte(host)) return false;
  }
  return host.empty();
}

}  // namespace slotwise
