#include "server/intake/finite.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace slotwise {
namespace {

// NaN and infinity are the numbers whose exponent bits are all ones. `Bits` is an unsigned integer of the
// numbers' size. Each number is copied, because the array need not be aligned or hold such integers.
template <class Bits, Bits kExponent>
bool NonFinite(const std::byte* number) {
  Bits bits;
  std::memcpy(&bits, number, sizeof(bits));
  return (bits & kExponent) == kExponent;
}

template <class Bits, Bits kExponent>
std::optional<std::size_t> Find(const void* numbers, DataType type, std::size_t size, ArrayHash* hash,
                                SampledSquares* squares) {
  constexpr std::size_t kBlock = 4096;
  static_assert(kBlock * sizeof(Bits) % SampledSquares::kLine == 0);
  const auto* const bytes = static_cast<const std::byte*>(numbers);
  for (std::size_t begin = 0; begin < size; begin += kBlock) {
    const std::size_t end = std::min(begin + kBlock, size);
    // There is no early exit inside a block, so that the compiler can vectorise the loop.
    Bits any = 0;
    for (std::size_t i = begin; i < end; ++i) {
      any |= static_cast<Bits>(NonFinite<Bits, kExponent>(bytes + i * sizeof(Bits)));
    }
    if (any == 0) {
      const std::byte* const block = bytes + begin * sizeof(Bits);
      if (hash != nullptr) hash->AddNumbers(block, type, end - begin);
      if (squares != nullptr) squares->Add(block, type, end - begin);
      continue;
    }
    for (std::size_t i = begin; i < end; ++i) {
      if (NonFinite<Bits, kExponent>(bytes + i * sizeof(Bits))) return i;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::size_t> FirstNonFinite(const void* numbers, DataType type, std::size_t size,
                                          ArrayHash* hash, SampledSquares* squares) {
  switch (type) {
    case DataType::kFloat32:
      return Find<std::uint32_t, 0x7F80'0000U>(numbers, type, size, hash, squares);
    case DataType::kFloat16:
      return Find<std::uint16_t, 0x7C00U>(numbers, type, size, hash, squares);
    case DataType::kBFloat16:
      return Find<std::uint16_t, 0x7F80U>(numbers, type, size, hash, squares);
  }
  return std::nullopt;
}

}  // namespace slotwise
