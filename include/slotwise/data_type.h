// This header defines how numbers travel, and how tables keep values: binary32 unchanged, or binary16 and
// bfloat16 in half the bytes.
//
// Rounding is to nearest, ties to even. A number that is too large becomes infinity, NaN stays NaN, and every
// 16-bit number has exactly one binary32. (IEEE 754-2019; bfloat16 is the upper half of a binary32.)
// Conversions of one number are constexpr, without branches or library calls, so that device code may call
// them too, loops over them become vector instructions, and they give the same bits everywhere.
// Thread-safety: free functions.
#ifndef SLOTWISE_DATA_TYPE_H_
#define SLOTWISE_DATA_TYPE_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

namespace slotwise {

enum class DataType : std::uint8_t { kFloat32, kFloat16, kBFloat16 };

// Returns "float32", "float16" or "bfloat16", and "unknown" for a number that is no type.
constexpr std::string_view ToString(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return "float32";
    case DataType::kFloat16:
      return "float16";
    case DataType::kBFloat16:
      return "bfloat16";
  }
  return "unknown";
}

constexpr std::size_t BytesOf(DataType type) { return type == DataType::kFloat32 ? 4 : 2; }

// Rounds `value` to 16 bits.
constexpr std::uint16_t ToFloat16(float value);
constexpr std::uint16_t ToBFloat16(float value);

// Returns the binary32 that 16 bits stand for.
constexpr float FromFloat16(std::uint16_t bits);
constexpr float FromBFloat16(std::uint16_t bits);

// Writes values.size() numbers as `type`, little-endian, to `bytes` (any alignment).
// REQUIRES: `bytes` has room for values.size() · BytesOf(type) bytes.
void Narrow(std::span<const float> values, DataType type, std::byte* bytes);

// Reads values.size() numbers of `type`, little-endian, from `bytes` (any alignment).
void Widen(const std::byte* bytes, DataType type, std::span<float> values);

// The conversions, of one number or of a vector of them. F is float or a vector of floats (the compilers' own
// vector types), U is uint32_t or as many of those; the results' upper halves are 0.
namespace internal {

template <class U, class Condition>
constexpr U Choose(Condition condition, U yes, U no) {
  return condition ? yes : no;
}

template <class F, class U>
constexpr U Float16BitsOf(F value) {
  const U bits = std::bit_cast<U>(value);
  const U sign = bits >> 16 & 0x8000U;
  const U magnitude = bits & 0x7FFF'FFFFU;
  // For a normal result, the exponent's bias goes from 127 to 15, and 13 bits of the mantissa are rounded
  // away. A mantissa that rounds up into the exponent gives the right number, up to infinity.
  const U odd = magnitude >> 13 & 1U;
  const U normal = (magnitude - (112U << 23) + 0xFFFU + odd) >> 13;
  // Below 2^-14, adding ½ as a float lets the hardware round at the last place of a subnormal, 2^-24.
  const U subnormal =
      std::bit_cast<U>(std::bit_cast<F>(magnitude) + 0.5F) - std::bit_cast<std::uint32_t>(0.5F);
  const U finite = Choose<U>(magnitude < (113U << 23), subnormal, normal);
  // Magnitudes of 65520 and above become infinity. A NaN becomes a quiet NaN.
  const U large = Choose<U>(magnitude > 0x7F80'0000U, U{} + 0x7E00U, U{} + 0x7C00U);
  return sign | Choose<U>(magnitude >= 0x477F'F000U, large, finite);
}

template <class F, class U>
constexpr U BFloat16BitsOf(F value) {
  const U bits = std::bit_cast<U>(value);
  const U rounded = (bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16;
  // A NaN gets a bit set, because rounding might turn the NaN into infinity.
  return Choose<U>((bits & 0x7FFF'FFFFU) > 0x7F80'0000U, bits >> 16 | 0x40U, rounded);
}

template <class F, class U>
constexpr F FloatOfFloat16(U bits) {
  const U sign = (bits & 0x8000U) << 16;
  const U magnitude = bits & 0x7FFFU;
  const U normal = (magnitude << 13) + (112U << 23);
  const U special = magnitude << 13 | 0x7F80'0000U;
  // A subnormal's bits count units of 2^-24. As the lowest bits of 2^23 they become a float exactly.
  const U subnormal = std::bit_cast<U>((std::bit_cast<F>(magnitude | 0x4B00'0000U) - 0x1p23F) * 0x1p-24F);
  return std::bit_cast<F>(
      sign | Choose<U>(magnitude < 0x400U, subnormal, Choose<U>(magnitude >= 0x7C00U, special, normal)));
}

template <class F, class U>
constexpr F FloatOfBFloat16(U bits) {
  return std::bit_cast<F>(bits << 16);
}

}  // namespace internal

constexpr std::uint16_t ToFloat16(float value) {
  return static_cast<std::uint16_t>(internal::Float16BitsOf<float, std::uint32_t>(value));
}

constexpr std::uint16_t ToBFloat16(float value) {
  return static_cast<std::uint16_t>(internal::BFloat16BitsOf<float, std::uint32_t>(value));
}

constexpr float FromFloat16(std::uint16_t bits) {
  return internal::FloatOfFloat16<float, std::uint32_t>(bits);
}

constexpr float FromBFloat16(std::uint16_t bits) {
  return internal::FloatOfBFloat16<float, std::uint32_t>(bits);
}

// Returns the largest finite number of the type.
constexpr float LargestOf(DataType type) {
  if (type == DataType::kFloat16) return FromFloat16(0x7BFF);
  return type == DataType::kBFloat16 ? FromBFloat16(0x7F7F) : std::numeric_limits<float>::max();
}

// Returns `value` rounded to the type, to nearest, as a binary32.
constexpr float RoundedTo(DataType type, float value) {
  if (type == DataType::kFloat16) return FromFloat16(ToFloat16(value));
  return type == DataType::kBFloat16 ? FromBFloat16(ToBFloat16(value)) : value;
}

}  // namespace slotwise

#endif  // SLOTWISE_DATA_TYPE_H_
