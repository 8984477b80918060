#include "server/rpc/finite.h"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace slotwise {
namespace {

// NaN and infinity are the floats whose exponent bits are all ones.
constexpr std::uint32_t kExponent = 0x7f80'0000u;

bool NonFinite(float value) { return (std::bit_cast<std::uint32_t>(value) & kExponent) == kExponent; }

// There is no early exit inside a block, so that the compiler can vectorise the loop.
bool AnyNonFinite(std::span<const float> block) {
  std::uint32_t any = 0;
  for (const float value : block) any |= static_cast<std::uint32_t>(NonFinite(value));
  return any != 0;
}

}  // namespace

std::optional<std::size_t> FirstNonFinite(std::span<const float> values) {
  constexpr std::size_t kBlock = 4096;
  for (std::size_t begin = 0; begin < values.size(); begin += kBlock) {
    const auto block = values.subspan(begin, std::min(kBlock, values.size() - begin));
    if (AnyNonFinite(block)) {
      return begin + static_cast<std::size_t>(std::ranges::find_if(block, NonFinite) - block.begin());
    }
  }
  return std::nullopt;
}

}  // namespace slotwise
