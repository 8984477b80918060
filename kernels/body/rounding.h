// Rounds the weights that a step computes to the type of a table's values.
//
// Stochastic rounding takes one of a weight's two neighbours, by chance. With 16 random bits r, a weight that
// lies f of the way from the neighbour towards 0 to the other one becomes the other one if ⌊2^16 · f⌋ + r is
// 2^16 or more, so the mean over all r is the weight, to 2^-16 of the distance. (Gupta et al. 2015, "Deep
// Learning with Limited Numerical Precision".) The bits are a function of (seed, key, element, step) alone,
// like initial values, so every backend and number of ranks rounds alike.
#ifndef SLOTWISE_KERNELS_BODY_ROUNDING_H_
#define SLOTWISE_KERNELS_BODY_ROUNDING_H_

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/body/philox.h"
#include "kernels/body/portable.h"
#include "slotwise/types.h"

namespace slotwise::body {

// Returns `value` as a bfloat16 by 16 random bits.
SLOTWISE_HD inline float RoundBy(std::uint32_t random, float value, BFloat16 /*type*/) {
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(value) + random) & 0xFFFF'0000U);
}

// Returns `value` as a binary16 by 16 random bits. A magnitude of 2^16 or more becomes infinity.
SLOTWISE_HD inline float RoundBy(std::uint32_t random, float value, Float16 /*type*/) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7FFF'FFFFU;
  // A normal result keeps 10 of the mantissa's 23 bits; of f, 13 bits are there.
  const std::uint32_t normal = (magnitude + (random >> 3)) & 0xFFFF'E000U;
#ifdef __CUDA_ARCH__
  // Few weights are smaller: on a GPU, others need not do what those need. The CPU's loop has to vectorise.
  if (magnitude >= 0x3880'0000U) {
    return std::bit_cast<float>((bits & 0x8000'0000U) | (normal >= 0x4780'0000U ? 0x7F80'0000U : normal));
  }
#endif
  // Below 2^-14, results are multiples of 2^-24. The weight is a number of 2^-40, truncated.
  const float small = magnitude < 0x3880'0000U ? std::bit_cast<float>(magnitude) : 0.0F;
  const auto units = (static_cast<std::uint32_t>(static_cast<std::int32_t>(small * 0x1p40F)) + random) >> 16;
  const auto subnormal =
      std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<std::int32_t>(units)) * 0x1p-24F);
  const std::uint32_t rounded = magnitude < 0x3880'0000U ? subnormal : normal;
  // 0x4780'0000 is 2^16. NaN stays NaN, or becomes infinity.
  return std::bit_cast<float>((bits & 0x8000'0000U) | (rounded >= 0x4780'0000U ? 0x7F80'0000U : rounded));
}

// Where elements of a row have their 16 random bits: a draw of Philox has those of two groups of four, which
// lie 32 elements apart, so that a GPU's lane, which often holds both, draws once.
struct PlaceOfChance {
  SLOTWISE_HD static constexpr std::uint32_t DrawOf(std::uint32_t element) {
    return element / 64 * 8 + element % 32 / 4;
  }
  SLOTWISE_HD static constexpr bool IsInUpperWords(std::uint32_t element) { return element / 32 % 2 != 0; }
};

// The rounding of one row's weights at one step.
template <class Element>
struct RowRounding {
  static constexpr bool kRounds = true;
  // The 16 bits of four elements that follow each other, each pair in a word.
  struct OfFour {
    std::uint32_t pairs[2];
    SLOTWISE_HD std::uint32_t Of(std::uint32_t k) const {
      return k % 2 == 0 ? pairs[k / 2] & 0xFFFFU : pairs[k / 2] >> 16;
    }
  };

  std::uint64_t seed;
  std::uint64_t step;
  Key key;
  bool by_chance;

  SLOTWISE_HD static float ToNearest(float weight) { return Element::Of(weight).WideFinite(); }
  SLOTWISE_HD static float ByChance(std::uint32_t random, float weight) {
    return RoundBy(random, weight, Element());
  }

  // Returns the draw that has an element's bits. Initial values have other counters (initial_value.h): their
  // last word is 0.
  SLOTWISE_HD PhiloxWords Draw(std::uint32_t element) const {
    constexpr int kRoundsOfDraw = 7;
    constexpr std::uint32_t kMostDraws = 512;  // of a row
    const auto low = static_cast<std::uint32_t>(Value(key));
    const auto high = static_cast<std::uint32_t>(Value(key) >> 32);
    const auto later = static_cast<std::uint32_t>(step >> 32) * kMostDraws;
    return Philox4x32<kRoundsOfDraw>(
        {{low, high, PlaceOfChance::DrawOf(element) + later, static_cast<std::uint32_t>(step)}},
        static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32));
  }
  // Returns the bits of the four elements, from a multiple of 4 on, of which `element` is one, in their draw.
  SLOTWISE_HD static OfFour BitsOf(const PhiloxWords& draw, std::uint32_t element) {
    const bool upper = PlaceOfChance::IsInUpperWords(element);
    return {{upper ? draw.word[2] : draw.word[0], upper ? draw.word[3] : draw.word[1]}};
  }
};
template <>
struct RowRounding<float> {
  static constexpr bool kRounds = false;
};

// How a step rounds weights.
struct RoundingOfStep {
  const std::uint64_t* keys = nullptr;  // of rows; null: to nearest
  std::uint32_t apart = 1;              // from one row's key to the next one's
  std::uint64_t seed = 0;
};

// The same, for each type of values.
template <class Element>
struct StepRounding {
  RoundingOfStep how;
  std::uint64_t step;

  static StepRounding Of(const RoundingOfStep& how, std::uint64_t step) { return {how, step}; }
  // Returns the key of a row, or any key if the rounding is to nearest.
  SLOTWISE_HD Key KeyOf(RowIndex row) const {
    return Key{how.keys == nullptr ? 0 : how.keys[static_cast<std::size_t>(Value(row)) * how.apart]};
  }
  SLOTWISE_HD RowRounding<Element> OfRow(Key key) const { return {how.seed, step, key, how.keys != nullptr}; }
  void Prefetch(RowIndex row) const {
    if (how.keys != nullptr)
      PrefetchBytes(how.keys + static_cast<std::size_t>(Value(row)) * how.apart, sizeof(Key));
  }
};
template <>
struct StepRounding<float> {
  static StepRounding Of(const RoundingOfStep& /*how*/, std::uint64_t /*step*/) { return {}; }
  SLOTWISE_HD Key KeyOf(RowIndex /*row*/) const { return Key{0}; }
  SLOTWISE_HD RowRounding<float> OfRow(Key /*key*/) const { return {}; }
  void Prefetch(RowIndex /*row*/) const {}
};

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_ROUNDING_H_
