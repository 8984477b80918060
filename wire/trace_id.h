// Reads callers' trace ids, as W3C's Trace Context defines them and OpenTelemetry sends them.
// Thread-safety: free functions.
#ifndef SLOTWISE_WIRE_TRACE_ID_H_
#define SLOTWISE_WIRE_TRACE_ID_H_

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace slotwise {

// Returns the trace id in a `traceparent` field, 32 hexadecimal digits; empty if the field is invalid
// (https://www.w3.org/TR/trace-context/, 3.2: version, trace-id, parent-id and flags, with dashes between).
inline std::string_view TraceIdOf(std::string_view traceparent) {
  constexpr std::size_t kSize = 55;  // of version 00; later versions may go on after a dash
  constexpr std::size_t kId = 3;
  constexpr std::size_t kIdSize = 32;
  if (traceparent.size() < kSize) return {};
  const std::string_view version = traceparent.substr(0, 2);
  if (version == "ff" || (version == "00" && traceparent.size() > kSize)) return {};
  if (traceparent.size() > kSize && traceparent[kSize] != '-') return {};
  for (std::size_t i = 0; i < kSize; ++i) {
    const char c = traceparent[i];
    const bool is_dash = i == 2 || i == kId + kIdSize || i == kSize - 3;
    const bool is_hex = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
    if (is_dash ? c != '-' : !is_hex) return {};
  }
  const std::string_view id = traceparent.substr(kId, kIdSize);
  return std::ranges::count(id, '0') == static_cast<std::ptrdiff_t>(kIdSize) ? std::string_view() : id;
}

}  // namespace slotwise

#endif  // SLOTWISE_WIRE_TRACE_ID_H_
