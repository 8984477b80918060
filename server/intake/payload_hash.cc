#include "server/intake/payload_hash.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "server/engine/split_mix.h"

namespace slotwise {
namespace {

std::uint64_t Product(std::uint64_t pair) { return (pair & 0xFFFF'FFFF) * (pair >> 32); }

// Sums the products of the `pairs` pairs that `pair_at` returns, from `place` on, and advances `place`.
template <class PairAt>
std::uint64_t SumPairs(std::size_t pairs, std::uint64_t& place, const PairAt& pair_at) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < pairs; ++i) {
    place += kPairPlace;
    sum += Product(pair_at(i) + place);
  }
  return sum;
}

template <class T>
T Load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

}  // namespace

void ArrayHash::AddWords(const void* words, std::size_t count) {
  constexpr std::size_t kWord = sizeof(std::uint32_t);
  const auto* const bytes = static_cast<const std::byte*>(words);
  sum_ +=
      SumPairs(count / 2, place_, [&](std::size_t i) { return Load<std::uint64_t>(bytes + i * 2 * kWord); });
  if (count % 2 == 1) {
    sum_ +=
        SumPairs(1, place_, [&](std::size_t) { return Load<std::uint32_t>(bytes + (count - 1) * kWord); });
  }
  words_ += count;
}

void ArrayHash::AddNumbers(const void* numbers, DataType type, std::size_t count) {
  const auto* const bytes = static_cast<const std::byte*>(numbers);
  if (type == DataType::kFloat32) return AddWords(numbers, count);
  if (type == DataType::kBFloat16) {  // a bfloat16 is the upper half of its float32
    sum_ += SumPairs(count / 2, place_, [&](std::size_t i) {
      const std::uint64_t halves = Load<std::uint32_t>(bytes + i * 4);
      return (halves & 0xFFFF) << 16 | (halves & 0xFFFF'0000) << 32;
    });
    if (count % 2 == 1) {
      sum_ += SumPairs(1, place_, [&](std::size_t) {
        return std::uint64_t{Load<std::uint16_t>(bytes + (count - 1) * 2)} << 16;
      });
    }
    words_ += count;
    return;
  }
  std::array<float, 1024> wide;
  for (std::size_t done = 0; done < count; done += wide.size()) {
    const std::size_t size = std::min(wide.size(), count - done);
    Widen(bytes + done * BytesOf(type), type, std::span(wide).first(size));
    AddWords(wide.data(), size);
  }
}

std::uint64_t ArrayHash::value() const { return SplitMix(sum_ + SplitMix(words_)); }

std::uint32_t PayloadHash(std::uint32_t samples, std::span<const std::uint64_t> arrays,
                          std::optional<float> learning_rate) {
  std::uint64_t hash = SplitMix(samples);
  const auto add = [&hash](std::uint64_t next) { hash = SplitMix(hash + kPairPlace + next); };
  for (const std::uint64_t array : arrays) add(array);
  if (learning_rate) add(std::bit_cast<std::uint32_t>(*learning_rate));
  return static_cast<std::uint32_t>(hash);
}

}  // namespace slotwise
