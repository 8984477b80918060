#include "slotwise/data_type.h"

#include <bit>
#include <cstring>

namespace slotwise {
namespace {

// Without branches, so that loops over these become vector instructions.

std::uint32_t Choose(bool condition, std::uint32_t yes, std::uint32_t no) { return condition ? yes : no; }

std::uint32_t Float16Bits(std::uint32_t bits) {
  const std::uint32_t sign = bits >> 16 & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7FFF'FFFFU;
  // Normal: the exponent's bias goes from 127 to 15, and 13 bits of the mantissa are rounded away. A mantissa that
  // rounds up into the exponent is right as it is, up to infinity.
  const std::uint32_t odd = magnitude >> 13 & 1U;
  const std::uint32_t normal = (magnitude - (112U << 23) + 0xFFFU + odd) >> 13;
  // Below 2^-14: adding ½ as a float lets the hardware round at the last place of a subnormal, 2^-24.
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) -
                                  std::bit_cast<std::uint32_t>(0.5F);
  const std::uint32_t finite = Choose(magnitude < (113U << 23), subnormal, normal);
  // From 65520 on it is infinity; a NaN stays one, and quiet.
  const std::uint32_t large = Choose(magnitude > 0x7F80'0000U, 0x7E00U, 0x7C00U);
  return sign | Choose(magnitude >= 0x477F'F000U, large, finite);
}

std::uint32_t BFloat16Bits(std::uint32_t bits) {
  const std::uint32_t rounded = (bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16;
  const bool nan = (bits & 0x7FFF'FFFFU) > 0x7F80'0000U;
  return Choose(nan, bits >> 16 | 0x40U, rounded);  // else rounding might make a NaN infinity
}

std::uint32_t BitsOfFloat16(std::uint32_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16;
  const std::uint32_t magnitude = bits & 0x7FFFU;
  const std::uint32_t normal = (magnitude << 13) + (112U << 23);
  const std::uint32_t special = magnitude << 13 | 0x7F80'0000U;
  // A subnormal counts 2^-24s.
  const auto subnormal =
      std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24F);
  return sign | Choose(magnitude < 0x400U, subnormal, Choose(magnitude >= 0x7C00U, special, normal));
}

template <class Convert>
void NarrowEach(std::span<const float> values, std::byte* bytes, Convert convert) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto half = static_cast<std::uint16_t>(convert(std::bit_cast<std::uint32_t>(values[i])));
    std::memcpy(bytes + i * sizeof(half), &half, sizeof(half));
  }
}

template <class Convert>
void WidenEach(const std::byte* bytes, std::span<float> values, Convert convert) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t half = 0;
    std::memcpy(&half, bytes + i * sizeof(half), sizeof(half));
    values[i] = std::bit_cast<float>(convert(std::uint32_t{half}));
  }
}

}  // namespace

std::string_view ToString(DataType type) {
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

std::uint16_t ToFloat16(float value) {
  return static_cast<std::uint16_t>(Float16Bits(std::bit_cast<std::uint32_t>(value)));
}
std::uint16_t ToBFloat16(float value) {
  return static_cast<std::uint16_t>(BFloat16Bits(std::bit_cast<std::uint32_t>(value)));
}
float FromFloat16(std::uint16_t bits) { return std::bit_cast<float>(BitsOfFloat16(bits)); }
float FromBFloat16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

void Narrow(std::span<const float> values, DataType type, std::byte* bytes) {
  switch (type) {
    case DataType::kFloat32:
      if (!values.empty()) std::memcpy(bytes, values.data(), values.size_bytes());
      return;
    case DataType::kFloat16:
      return NarrowEach(values, bytes, Float16Bits);
    case DataType::kBFloat16:
      return NarrowEach(values, bytes, BFloat16Bits);
  }
}

void Widen(const std::byte* bytes, DataType type, std::span<float> values) {
  switch (type) {
    case DataType::kFloat32:
      if (!values.empty()) std::memcpy(values.data(), bytes, values.size_bytes());
      return;
    case DataType::kFloat16:
      return WidenEach(bytes, values, BitsOfFloat16);
    case DataType::kBFloat16:
      return WidenEach(bytes, values, [](std::uint32_t bits) { return bits << 16; });
  }
}

}  // namespace slotwise
