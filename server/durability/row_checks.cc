#include "server/durability/row_checks.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace slotwise {
namespace {

// `Bits` is an unsigned integer of the numbers' size. NaN and infinity have all exponent bits set. A number
// below 0 has the sign bit and some other bit set.
template <class Bits, Bits kExponent, bool kSquares = false>
std::optional<std::size_t> Find(std::span<const std::byte> bytes) {
  constexpr std::size_t kBlock = 4096;
  constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  const auto wrong = [&](std::size_t place) {
    Bits bits = 0;
    std::memcpy(&bits, bytes.data() + place * sizeof(Bits), sizeof(bits));
    const bool infinite = (bits & kExponent) == kExponent;
    if constexpr (!kSquares) return static_cast<Bits>(infinite);
    return static_cast<Bits>(infinite | (bits > kSign));
  };
  const std::size_t size = bytes.size() / sizeof(Bits);
  for (std::size_t begin = 0; begin < size; begin += kBlock) {
    const std::size_t end = std::min(begin + kBlock, size);
    // There is no early exit inside a block, so that the compiler can vectorise the loop.
    Bits any = 0;
    for (std::size_t i = begin; i < end; ++i) any |= wrong(i);
    if (any == 0) continue;
    for (std::size_t i = begin;; ++i) {
      if (wrong(i) != 0) return i;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::size_t> FirstWrongNumber(std::span<const std::byte> bytes, DataType type, bool squares) {
  switch (type) {
    case DataType::kFloat32:
      return squares ? Find<std::uint32_t, 0x7F80'0000U, true>(bytes)
                     : Find<std::uint32_t, 0x7F80'0000U>(bytes);
    case DataType::kFloat16:
      return Find<std::uint16_t, 0x7C00U>(bytes);
    case DataType::kBFloat16:
      return Find<std::uint16_t, 0x7F80U>(bytes);
  }
  return std::nullopt;
}

}  // namespace slotwise
