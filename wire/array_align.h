// Arrays of the data transport (proto/slotwise/v1/data.proto) begin at multiples of 64 bytes, which devices
// read fastest.
// Thread-safety: free functions.
#ifndef SLOTWISE_WIRE_ARRAY_ALIGN_H_
#define SLOTWISE_WIRE_ARRAY_ALIGN_H_

#include <cstddef>
#include <cstdint>

namespace slotwise {

inline constexpr std::size_t kArrayAlign = 64;

// Returns an array's bytes with the padding behind them.
constexpr std::uint64_t PaddedBytes(std::uint64_t bytes) {
  return (bytes + kArrayAlign - 1) / kArrayAlign * kArrayAlign;
}

}  // namespace slotwise

#endif  // SLOTWISE_WIRE_ARRAY_ALIGN_H_
