// How numbers travel: binary32 as they are, or binary16 and bfloat16 in half the bytes.
//
// Rounding is to nearest, ties to even; what is too large becomes infinity, NaN stays NaN, and every 16-bit number has
// exactly one binary32. (IEEE 754-2019; bfloat16 is the upper half of a binary32.)
// Thread-safety: free functions.
#ifndef SLOTWISE_DATA_TYPE_H_
#define SLOTWISE_DATA_TYPE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace slotwise {

enum class DataType : std::uint8_t { kFloat32, kFloat16, kBFloat16 };

// "float32", "float16", "bfloat16".
std::string_view ToString(DataType type);

constexpr std::size_t BytesOf(DataType type) { return type == DataType::kFloat32 ? 4 : 2; }

// The 16 bits of `value`.
std::uint16_t ToFloat16(float value);
std::uint16_t ToBFloat16(float value);

// The binary32 of 16 bits.
float FromFloat16(std::uint16_t bits);
float FromBFloat16(std::uint16_t bits);

// values.size() numbers as `type`, little-endian, to `bytes` (any alignment).
// REQUIRES: room for values.size() · BytesOf(type) bytes.
void Narrow(std::span<const float> values, DataType type, std::byte* bytes);

// The other way round.
void Widen(const std::byte* bytes, DataType type, std::span<float> values);

}  // namespace slotwise

#endif  // SLOTWISE_DATA_TYPE_H_
