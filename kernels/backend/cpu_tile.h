// The CPU's tile is one lane, whose vectors are the processor's vector registers.
//
// The compilers' vector types keep a chunk's sums in registers while the rows of a bag are added to them;
// with arrays of floats, compilers do so only for short chunks.
#ifndef SLOTWISE_KERNELS_BACKEND_CPU_TILE_H_
#define SLOTWISE_KERNELS_BACKEND_CPU_TILE_H_

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/body/portable.h"

namespace slotwise {

#ifdef __AVX__
using CpuVector [[gnu::vector_size(32)]] = float;
#else
using CpuVector [[gnu::vector_size(16)]] = float;
#endif

// As many 16-bit numbers as a vector V has floats, in the low halves of 32 bits each.
template <class V>
struct HalvesIn {
  using Bits [[gnu::vector_size(sizeof(V))]] = std::uint32_t;
  using Narrow [[gnu::vector_size(sizeof(V) / 2)]] = std::uint16_t;

  static Bits Of(V floats, body::Float16 /*type*/) { return internal::Float16BitsOf<V, Bits>(floats); }
  static Bits Of(V floats, body::BFloat16 /*type*/) { return internal::BFloat16BitsOf<V, Bits>(floats); }
  static V Widen(Bits bits, body::Float16 /*type*/) { return internal::FloatOfFloat16<V>(bits); }
  static V Widen(Bits bits, body::BFloat16 /*type*/) { return internal::FloatOfBFloat16<V>(bits); }
};

// The vector is part of the types' names, because files compiled for other processors have another vector.
template <class Vector>
struct VectorTile {
  static constexpr std::uint32_t kLanes = 1;
  static constexpr std::uint32_t kRowsInFlight = 1;  // the processor itself sees ahead
  static constexpr std::uint32_t lane() { return 0; }
  static constexpr void Sync() {}
  static constexpr std::uint32_t From(std::uint32_t /*lane*/, std::uint32_t x) { return x; }
};

using CpuTile = VectorTile<CpuVector>;

// A chunk as in body/portable.h, all of which lies within the row.
template <class V, std::uint32_t N>
struct VectorChunk {
  using Vector = V;
  static constexpr std::uint32_t kVectors = N;
  static constexpr std::uint32_t kVectorFloats = sizeof(V) / sizeof(float);
  static constexpr std::uint32_t kFloats = kVectors * kVectorFloats;
  static constexpr std::uint32_t kItemsInFlight = 1;  // the processor itself sees ahead
  std::uint32_t first;
  std::uint32_t dim;

  Vector Load(const float* row, std::uint32_t vector) const {
    Vector value;
    std::memcpy(&value, row + Element(vector), sizeof(value));
    return value;
  }
  void Store(float* row, std::uint32_t vector, Vector value) const {
    std::memcpy(row + Element(vector), &value, sizeof(value));
  }
  template <class T>
  Vector LoadRow(const T* row, std::uint32_t vector) const {
    return Load(row, vector);
  }
  // Half is body::Float16 or body::BFloat16.
  template <class Half>
  Vector Load(const Half* row, std::uint32_t vector) const {
    using Halves = HalvesIn<Vector>;
    typename Halves::Narrow halves;
    std::memcpy(&halves, row + Element(vector), sizeof(halves));
    return Halves::Widen(__builtin_convertvector(halves, typename Halves::Bits), Half{});
  }
  template <class Half>
  void Store(Half* row, std::uint32_t vector, Vector value) const {
    using Halves = HalvesIn<Vector>;
    const auto halves = __builtin_convertvector(Halves::Of(value, Half{}), typename Halves::Narrow);
    std::memcpy(row + Element(vector), &halves, sizeof(halves));
  }
  template <class ValueOf>
  Vector Make(std::uint32_t vector, ValueOf value) const {
    std::array<float, kVectorFloats> floats;
    for (std::uint32_t k = 0; k < kVectorFloats; ++k)
      floats[k] = value(static_cast<std::uint32_t>(Element(vector)) + k);
    Vector made;
    std::memcpy(&made, floats.data(), sizeof(made));
    return made;
  }
  template <class Visit>
  void ForEachElement(const Vector (&values)[kVectors], Visit visit) const {
    // The compilers let vectors of floats be read as floats. A copy would go through memory in halves of a
    // vector, and the loads of whole vectors would wait for those.
    const float* const elements = reinterpret_cast<const float*>(values);
    // Such indices cannot wrap around, so the compiler sees that elements are neighbours.
    for (std::size_t k = 0; k < kFloats; ++k) visit(first + k, elements[k]);
  }
  bool IsWholeRow() const { return kFloats == dim; }
  float AddSquares(const Vector (&values)[kVectors], float sum) const {
    ForEachElement(values, [&sum](std::size_t /*element*/, float value) { sum += value * value; });
    return sum;
  }
  // The processor itself has the record's loads under way with those of the gradients.
  template <std::uint32_t kArrays>
  struct Record {};
  template <std::uint32_t kArrays, class T>
  Record<kArrays> LoadRecord(const T* /*record*/, const float* /*state*/) const {
    return {};
  }
  template <class Optimizer, class Rounding>
  void ApplyOptimizer(const Optimizer& optimizer, float* record, float* state,
                      const Record<1 + Optimizer::kStates>& /*before*/, const Vector (&gradients)[kVectors],
                      const Rounding& /*exact*/) const {
    // Captures by value: for all the compiler knows, a row's new elements might overwrite what a reference
    // reaches.
    ForEachElement(gradients, [=, dim = dim](std::size_t element, float g) {
      optimizer(record + element, state + element, dim, g, [](float weight) { return weight; });
    });
  }
  template <class Optimizer, class Half, class Rounding>
  void ApplyOptimizer(const Optimizer& optimizer, Half* record, float* state,
                      const Record<1 + Optimizer::kStates>& /*before*/, const Vector (&gradients)[kVectors],
                      const Rounding& rounding) const {
    alignas(Vector) float weights[kFloats];
    for (std::uint32_t v = 0; v < kVectors; ++v) {
      const Vector wide = Load(record, v);
      std::memcpy(weights + v * kVectorFloats, &wide, sizeof(wide));
    }
    const auto apply = [&, state = state + first, dim = dim](const auto& round) {
      const float* const g = reinterpret_cast<const float*>(gradients);
      for (std::size_t k = 0; k < kFloats; ++k) {
        optimizer(weights + k, state + k, dim, g[k], [&](float weight) { return round(weight, k); });
      }
    };
    if (rounding.by_chance) {
      const std::array<std::uint32_t, kFloats> random = Bits(rounding);
      apply([&](float weight, std::size_t k) { return Rounding::ByChance(random[k], weight); });
    } else {
      apply([](float weight, std::size_t /*k*/) { return Rounding::ToNearest(weight); });
    }
    for (std::uint32_t v = 0; v < kVectors; ++v) {
      Vector wide;
      std::memcpy(&wide, weights + v * kVectorFloats, sizeof(wide));
      Store(record, v, wide);
    }
  }

 private:
  // Returns the random bits of the chunk's elements.
  template <class Rounding>
  std::array<std::uint32_t, kFloats> Bits(const Rounding& rounding) const {
    std::array<std::uint32_t, kFloats> bits;
    for (std::uint32_t k = 0; k < kFloats; k += 4) {
      const bool is_drawn = kFloats == 64 && k >= 32;  // with the bits of 32 elements before
      if (is_drawn) continue;
      const auto draw = rounding.Draw(first + k);
      for (std::uint32_t at = k; at < kFloats; at += 32) {
        const auto of_four = Rounding::BitsOf(draw, first + at);
        for (std::uint32_t i = 0; i < 4; ++i) bits[at + i] = of_four.Of(i);
        if (kFloats != 64) break;
      }
    }
    return bits;
  }

  std::size_t Element(std::uint32_t vector) const { return first + std::size_t{vector} * kVectorFloats; }
};

// Visits chunks of eight registers (half of what most processors have, so that rows can be loaded beside
// them), then of two, then the rest by floats.
template <class Vector, class Visit>
void ForEachChunk(VectorTile<Vector> /*tile*/, std::uint32_t dim, Visit visit) {
  using Long = VectorChunk<Vector, 8>;
  using Short = VectorChunk<Vector, 2>;
  std::uint32_t base = 0;
  for (; base + Long::kFloats <= dim; base += Long::kFloats) visit(Long{base, dim});
  for (; base + Short::kFloats <= dim; base += Short::kFloats) visit(Short{base, dim});
  if (base < dim) visit(body::TileChunk<body::SerialTile, false>{base, dim});
}

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_BACKEND_CPU_TILE_H_
