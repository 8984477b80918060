// How numbers travel: binary32 as they are, or binary16 and bfloat16 in half the bytes.
//
// Rounding is to nearest, ties to even; what is too large becomes infinity, NaN stays NaN, and every 16-bit number has
// exactly one binary32. (IEEE 754-2019; bfloat16 is the upper half of a binary32.)
// Conversions of one number are constexpr and without branches or library calls: device code may call them too, loops
// over them become vector instructions, and they give the same bits everywhere.
// Thread-safety: free functions.
#ifndef SLOTWISE_DATA_TYPE_H_
#define SLOTWISE_DATA_TYPE_H_

#include <bit>
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
constexpr std::uint16_t ToFloat16(float value);
constexpr std::uint16_t ToBFloat16(float value);

// The binary32 of 16 bits.
constexpr float FromFloat16(std::uint16_t bits);
constexpr float FromBFloat16(std::uint16_t bits);

// values.size() numbers as `type`, little-endian, to `bytes` (any alignment).
// REQUIRES: room for values.size() · BytesOf(type) bytes.
void Narrow(std::span<const float> values, DataType type, std::byte* bytes);

// The other way round.
void Widen(const std::byte* bytes, DataType type, std::span<float> values);

namespace internal {
constexpr std::uint32_t Choose(bool condition, std::uint32_t yes, std::uint32_t no) {
  return condition ? yes : no;
}
}  // namespace internal

constexpr std::uint16_t ToFloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7FFF'FFFFU;
  // Normal: the exponent's bias goes from 127 to 15, and 13 bits of the mantissa are rounded away. A mantissa that
  // rounds up into the exponent is right as it is, up to infinity.
  const std::uint32_t odd = magnitude >> 13 & 1U;
  const std::uint32_t normal = (magnitude - (112U << 23) + 0xFFFU + odd) >> 13;
  // Below 2^-14: adding ½ as a float lets the hardware round at the last place of a subnormal, 2^-24.
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) -
                                  std::bit_cast<std::uint32_t>(0.5F);
  const std::uint32_t finite = internal::Choose(magnitude < (113U << 23), subnormal, normal);
  // From 65520 on it is infinity; a NaN stays one, and quiet.
  const std::uint32_t large = internal::Choose(magnitude > 0x7F80'0000U, 0x7E00U, 0x7C00U);
  return static_cast<std::uint16_t>(sign | internal::Choose(magnitude >= 0x477F'F000U, large, finite));
}

constexpr std::uint16_t ToBFloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16;
  const bool nan = (bits & 0x7FFF'FFFFU) > 0x7F80'0000U;
  // Else rounding might make a NaN infinity.
  return static_cast<std::uint16_t>(internal::Choose(nan, bits >> 16 | 0x40U, rounded));
}

constexpr float FromFloat16(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16;
  const std::uint32_t magnitude = bits & 0x7FFFU;
  const std::uint32_t normal = (magnitude << 13) + (112U << 23);
  const std::uint32_t special = magnitude << 13 | 0x7F80'0000U;
  // A subnormal counts 2^-24s.
  const auto subnormal =
      std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24F);
  return std::bit_cast<float>(sign |
                              internal::Choose(magnitude < 0x400U, subnormal,
                                               internal::Choose(magnitude >= 0x7C00U, special, normal)));
}

constexpr float FromBFloat16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

}  // namespace slotwise

#endif  // SLOTWISE_DATA_TYPE_H_
