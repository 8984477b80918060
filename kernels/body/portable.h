// A function marker and the tile let an algorithm be written once for the CPU and for CUDA.
//
// A tile is the lanes that work on one row together. A row's elements are cut into chunks. A lane holds some
// vectors of a chunk; it loads or stores a vector at once, which is a float, or four (Float4). Neighbouring
// lanes hold neighbouring vectors, so loads coalesce. The CPU's own tile (backend/cpu_tile.h) is one lane,
// whose vectors are the processor's. One lane computes an element, in one order, so the result never depends
// on the tile.
#ifndef SLOTWISE_KERNELS_BODY_PORTABLE_H_
#define SLOTWISE_KERNELS_BODY_PORTABLE_H_

#include <bit>
#include <cstddef>
#include <cstdint>

#include "slotwise/data_type.h"

#ifdef __CUDACC__
#define SLOTWISE_HD __host__ __device__
#else
#define SLOTWISE_HD
#endif

// Stands before a loop over an array that is to stay in registers: CUDA's compiler has to know all of its
// indices.
#ifdef __CUDA_ARCH__
#define SLOTWISE_UNROLL _Pragma("unroll")
#define SLOTWISE_PRAGMA(text) _Pragma(#text)
#define SLOTWISE_UNROLL_BY(n) SLOTWISE_PRAGMA(unroll n)
#else
#define SLOTWISE_UNROLL
#define SLOTWISE_UNROLL_BY(n)
#endif

namespace slotwise::body {

// Four floats. Operators work on each of them by itself.
struct alignas(16) Float4 {
  float x, y, z, w;

  SLOTWISE_HD friend Float4 operator+(Float4 a, Float4 b) {
    return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
  }
  SLOTWISE_HD friend Float4 operator*(Float4 a, float b) { return {a.x * b, a.y * b, a.z * b, a.w * b}; }
  SLOTWISE_HD friend Float4 operator*(float a, Float4 b) { return {a * b.x, a * b.y, a * b.z, a * b.w}; }
  SLOTWISE_HD friend Float4 operator/(Float4 a, float b) { return {a.x / b, a.y / b, a.z / b, a.w / b}; }
  SLOTWISE_HD Float4& operator+=(Float4 b) { return *this = *this + b; }
};

SLOTWISE_HD inline float Squared(float x) { return x * x; }
SLOTWISE_HD inline Float4 Squared(Float4 a) { return {a.x * a.x, a.y * a.y, a.z * a.z, a.w * a.w}; }

template <class Vector>
inline constexpr std::uint32_t kFloatsOf = 1;
template <>
inline constexpr std::uint32_t kFloatsOf<Float4> = 4;

// Unpack and Pack copy a vector's floats to an array, and back.
SLOTWISE_HD inline void Unpack(float vector, float* floats) { floats[0] = vector; }
SLOTWISE_HD inline void Unpack(Float4 vector, float* floats) {
  floats[0] = vector.x;
  floats[1] = vector.y;
  floats[2] = vector.z;
  floats[3] = vector.w;
}
SLOTWISE_HD inline void Pack(const float* floats, float& vector) { vector = floats[0]; }
SLOTWISE_HD inline void Pack(const float* floats, Float4& vector) {
  vector = {floats[0], floats[1], floats[2], floats[3]};
}

// Numbers of 16 bits. They only lie in memory: a load makes floats of them, and a store rounds floats to
// them. WideFinite() and OfExact() do the same for numbers that are finite, and that have 16 bits already.
struct Float16 {
  std::uint16_t bits;
  SLOTWISE_HD static Float16 Of(float value) {
#ifdef __CUDA_ARCH__
    // One instruction gives the same bits, except for a NaN.
    std::uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    const bool is_number = value == value;
    return {is_number ? bits
                      : static_cast<std::uint16_t>((__float_as_uint(value) >> 16 & 0x8000U) | 0x7E00U)};
#else
    return {ToFloat16(value)};
#endif
  }
  SLOTWISE_HD constexpr float Wide() const { return FromFloat16(bits); }
  SLOTWISE_HD float WideFinite() const {
#ifdef __CUDA_ARCH__
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(bits));
    return wide;
#else
    return Wide();
#endif
  }
  SLOTWISE_HD static Float16 OfExact(float value) {
#ifdef __CUDA_ARCH__
    std::uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return {bits};
#else
    return {ToFloat16(value)};
#endif
  }
};
struct BFloat16 {
  std::uint16_t bits;
  SLOTWISE_HD static constexpr BFloat16 Of(float value) { return {ToBFloat16(value)}; }
  SLOTWISE_HD constexpr float Wide() const { return FromBFloat16(bits); }
  SLOTWISE_HD constexpr float WideFinite() const { return FromBFloat16(bits); }
  SLOTWISE_HD static BFloat16 OfExact(float value) {
    return {static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16)};
  }
};

// As many 16-bit numbers as a vector has floats: a lane loads or stores them at once.
template <class Vector, class Half>
struct HalvesOf {
  Half half;
  SLOTWISE_HD Half At(std::uint32_t /*k*/) const { return half; }
  SLOTWISE_HD void Set(std::uint32_t /*k*/, Half value) { half = value; }
};
template <class Half>
struct alignas(8) HalvesOf<Float4, Half> {
  std::uint32_t words[2];  // a GPU has no registers of 16 bits
  SLOTWISE_HD Half At(std::uint32_t k) const {
    return {static_cast<std::uint16_t>(words[k / 2] >> k % 2 * 16)};
  }
  // REQUIRES: k counts up from 0.
  SLOTWISE_HD void Set(std::uint32_t k, Half value) {
    words[k / 2] = k % 2 == 0 ? value.bits : words[k / 2] | std::uint32_t{value.bits} << 16;
  }
};

// A vector of a row as it lies in memory: there, numbers of 16 bits take half of the registers. Widened and
// AsStored make a vector of it, and the reverse; numbers of 16 bits are finite, and exact.
template <class Vector, class T>
struct StoredVector {
  using Type = HalvesOf<Vector, T>;
};
template <class Vector>
struct StoredVector<Vector, float> {
  using Type = Vector;
};
SLOTWISE_HD inline float Widened(float vector) { return vector; }
SLOTWISE_HD inline Float4 Widened(Float4 vector) { return vector; }
template <class Vector, class Half>
SLOTWISE_HD Vector Widened(const HalvesOf<Vector, Half>& narrow) {
  float floats[kFloatsOf<Vector>];
  SLOTWISE_UNROLL
  for (std::uint32_t k = 0; k < kFloatsOf<Vector>; ++k) floats[k] = narrow.At(k).WideFinite();
  Vector vector;
  Pack(floats, vector);
  return vector;
}
template <class Vector>
SLOTWISE_HD void AsStored(Vector vector, Vector& stored) {
  stored = vector;
}
template <class Vector, class Half>
SLOTWISE_HD void AsStored(Vector vector, HalvesOf<Vector, Half>& stored) {
  float floats[kFloatsOf<Vector>];
  Unpack(vector, floats);
  SLOTWISE_UNROLL
  for (std::uint32_t k = 0; k < kFloatsOf<Vector>; ++k) stored.Set(k, Half::OfExact(floats[k]));
}

// LoadVector and StoreVector take the address of a vector's first number. LoadRowVector loads values of a
// table's rows, which are finite; StoreExactVector stores floats that have 16 bits already.
template <class Vector>
SLOTWISE_HD Vector LoadVector(const float* from) {
  return *reinterpret_cast<const Vector*>(from);
}
template <class Vector, class Half>
SLOTWISE_HD Vector LoadVector(const Half* from) {
  const auto narrow = *reinterpret_cast<const HalvesOf<Vector, Half>*>(from);
  float floats[kFloatsOf<Vector>];
  SLOTWISE_UNROLL
  for (std::uint32_t k = 0; k < kFloatsOf<Vector>; ++k) floats[k] = narrow.At(k).Wide();
  Vector vector;
  Pack(floats, vector);
  return vector;
}
template <class Vector>
SLOTWISE_HD Vector LoadRowVector(const float* from) {
  return LoadVector<Vector>(from);
}
template <class Vector, class Half>
SLOTWISE_HD Vector LoadRowVector(const Half* from) {
  return Widened(*reinterpret_cast<const HalvesOf<Vector, Half>*>(from));
}
template <class Vector>
SLOTWISE_HD void StoreVector(float* to, Vector vector) {
  *reinterpret_cast<Vector*>(to) = vector;
}
template <class Vector, class Half>
SLOTWISE_HD void StoreVector(Half* to, Vector vector) {
  float floats[kFloatsOf<Vector>];
  Unpack(vector, floats);
  HalvesOf<Vector, Half> narrow;
  SLOTWISE_UNROLL
  for (std::uint32_t k = 0; k < kFloatsOf<Vector>; ++k) narrow.Set(k, Half::Of(floats[k]));
  *reinterpret_cast<HalvesOf<Vector, Half>*>(to) = narrow;
}

template <class Vector>
SLOTWISE_HD void StoreExactVector(float* to, Vector vector) {
  StoreVector(to, vector);
}
template <class Vector, class Half>
SLOTWISE_HD void StoreExactVector(Half* to, Vector vector) {
  HalvesOf<Vector, Half> narrow;
  AsStored(vector, narrow);
  *reinterpret_cast<HalvesOf<Vector, Half>*>(to) = narrow;
}

// The tile of one lane, which takes 16 floats at a time. In any tile, Sync() waits for the tile's other lanes
// and makes what they wrote visible; From(lane, x) returns that lane's x, and all lanes call From together. A
// tile of more lanes than one has Memory<n>(), n floats that all of its lanes see.
struct SerialTile {
  static constexpr std::uint32_t kLanes = 1;
  using Vector = float;
  static constexpr std::uint32_t kVectors = 16;
  static constexpr std::uint32_t kRowsInFlight = 1;  // rows that are loaded before the first is added up
  SLOTWISE_HD static constexpr std::uint32_t lane() { return 0; }
  SLOTWISE_HD static constexpr void Sync() {}
  SLOTWISE_HD static constexpr std::uint32_t From(std::uint32_t /*lane*/, std::uint32_t x) { return x; }
};

// Prefetches the cache lines of data that will be read soon, on the CPU alone. A body of a launch may have a
// `Prefetch(i)` and a `kAhead`: the CPU backend calls Prefetch(i) kAhead indices before it calls the body
// with i, so that memory is under way while the body works on others. A body that has a `KeyOf(i)` too
// searches the hash table `searched()` for that key: the CPU backend hashes many keys at once, and calls
// Prefetch(i, hash) and body(i, hash). On CUDA other warps fill the time, and only body(i) is called.
template <int kLocality = 3>
void PrefetchBytes(const void* data, std::size_t bytes) {
  constexpr std::size_t kCacheLineBytes = 64;
  const char* begin = static_cast<const char*>(data);
  for (std::size_t at = 0; at < bytes; at += kCacheLineBytes) {
    __builtin_prefetch(begin + at, 0, kLocality);
    asm volatile(
        "");  // a function that only prefetches has no effect in GCC's eyes, which would drop calls to it
  }
}

// Prefetches a row. A row of several lines is fetched as far as the second-level cache: a core has room for
// few lines on their way to the first level, and waits when it asks for more. The processor itself prefetches
// the end of a long row.
template <class Element>
void PrefetchRow(const Element* row, std::size_t elements) {
  constexpr int kFirstLevel = 3;
  constexpr int kSecondLevel = 2;
  constexpr std::size_t kLineBytes = 64;
  constexpr std::size_t kMostBytes = 2048;
  const std::size_t bytes = elements * sizeof(Element);
  if (bytes < kLineBytes) return PrefetchBytes<kFirstLevel>(row, bytes);
  PrefetchBytes<kSecondLevel>(row, bytes < kMostBytes ? bytes : kMostBytes);
}

// This lane's vectors of a chunk. A chunk that is not kWhole is longer than the rest of the row: elements
// beyond the row load as 0 and are not stored. Elements in memory are float, Float16 or BFloat16. REQUIRES:
// Tile::Vector is float, or rows are aligned to a vector's size in memory, and have a whole number of
// vectors.
template <class Tile, bool kWhole>
struct TileChunk {
  using Vector = typename Tile::Vector;
  static constexpr std::uint32_t kVectors = Tile::kVectors;
  static constexpr std::uint32_t kVectorFloats = kFloatsOf<Vector>;
  static constexpr std::uint32_t kFloats = Tile::kLanes * kVectors * kVectorFloats;  // of all lanes
  // The number of items that a sum may load before it adds the first. A second item costs no warps on a GPU
  // where a lane's part of a row is so large that few warps have the registers for it anyway.
  static constexpr std::uint32_t kItemsInFlight =
      Tile::kRowsInFlight > 1 && kFloats / Tile::kLanes >= 16 ? 2 : 1;
  std::uint32_t first;
  std::uint32_t dim;

  template <class T>
  SLOTWISE_HD Vector Load(const T* row, std::uint32_t vector) const {
    return Has(vector) ? LoadVector<Vector>(row + Element(vector)) : Vector{};
  }
  template <class T>
  SLOTWISE_HD void Store(T* row, std::uint32_t vector, Vector value) const {
    if (Has(vector)) StoreVector(row + Element(vector), value);
  }
  // Returns a vector of a table's row as it lies in memory.
  template <class T>
  using Stored = typename StoredVector<Vector, T>::Type;
  template <class T>
  SLOTWISE_HD Stored<T> LoadStored(const T* row, std::uint32_t vector) const {
    return Has(vector) ? *reinterpret_cast<const Stored<T>*>(row + Element(vector)) : Stored<T>{};
  }
  // Does the same as Load for a row of a table.
  template <class T>
  SLOTWISE_HD Vector LoadRow(const T* row, std::uint32_t vector) const {
    return Has(vector) ? LoadRowVector<Vector>(row + Element(vector)) : Vector{};
  }

  // Returns a vector of the chunk whose elements are value(element).
  template <class ValueOf>
  SLOTWISE_HD Vector Make(std::uint32_t vector, ValueOf value) const {
    Vector made{};
    if (!Has(vector)) return made;
    float floats[kVectorFloats];
    for (std::uint32_t k = 0; k < kVectorFloats; ++k) floats[k] = value(Element(vector) + k);
    Pack(floats, made);
    return made;
  }

  // Calls visit(element, its value) for this lane's elements, in order.
  template <class Visit>
  SLOTWISE_HD void ForEachElement(const Vector (&values)[kVectors], Visit visit) const {
    for (std::uint32_t v = 0; v < kVectors; ++v) {
      if (!Has(v)) continue;
      float floats[kVectorFloats];
      Unpack(values[v], floats);
      for (std::uint32_t k = 0; k < kVectorFloats; ++k) visit(Element(v) + k, floats[k]);
    }
  }

  // Returns whether the row has no other chunk.
  SLOTWISE_HD bool IsWholeRow() const { return kFloats >= dim; }

  // Returns `sum` and the squares of the chunk's elements, added one by one in the order of the row. The
  // lanes call the function together, each with its own vectors, and all get the result.
  SLOTWISE_HD float AddSquares(const Vector (&values)[kVectors], float sum) const {
    if constexpr (Tile::kLanes == 1) {
      ForEachElement(values, [&](std::size_t /*element*/, float value) { sum += value * value; });
    } else {
      // A lane hands its squares to all, and each lane adds all of them up: a sum that went from lane to lane
      // would take longer.
      float* const squares = Tile::template Memory<kFloats>();
      Tile::Sync();  // the lanes have read what lay there before
      SLOTWISE_UNROLL
      for (std::uint32_t v = 0; v < kVectors; ++v) {
        StoreVector(squares + (v * Tile::kLanes + Tile::lane()) * kVectorFloats, Squared(values[v]));
      }
      Tile::Sync();
      const std::uint32_t base = first - Tile::lane() * kVectorFloats;
      const std::uint32_t count = kWhole ? kFloats : dim - base;
      if (kWhole || count % 4 == 0) {
        SLOTWISE_UNROLL_BY(4)
        for (std::uint32_t j = 0; j < count; j += 4) {
          const auto four = LoadVector<Float4>(squares + j);
          sum += four.x;
          sum += four.y;
          sum += four.z;
          sum += four.w;
        }
      } else {
        for (std::uint32_t j = 0; j < count; ++j) sum += squares[j];
      }
    }
    return sum;
  }

  // This lane's elements of a record that has `kArrays` arrays of the row's length: its values and state.
  template <std::uint32_t kArrays>
  struct Record {
    Vector arrays[kArrays][kVectors];
  };
  template <std::uint32_t kArrays, class T>
  SLOTWISE_HD Record<kArrays> LoadRecord(const T* record, const float* state) const {
    Record<kArrays> loaded;
    for (std::uint32_t v = 0; v < kVectors; ++v) loaded.arrays[0][v] = LoadRow(record, v);
    for (std::size_t a = 1; a < kArrays; ++a) {
      for (std::uint32_t v = 0; v < kVectors; ++v) loaded.arrays[a][v] = Load(state + (a - 1) * dim, v);
    }
    return loaded;
  }

  // Lets the optimizer (body/optimizer.h) update this lane's elements of a record by their gradients.
  // `before` is what LoadRecord returned: a caller loads the record before the gradients, so that all are
  // under way together. `rounding` is a body::RowRounding<T>.
  template <class Optimizer, class T, class Rounding>
  SLOTWISE_HD void ApplyOptimizer(const Optimizer& optimizer, T* record, float* state,
                                  const Record<1 + Optimizer::kStates>& before,
                                  const Vector (&gradients)[kVectors], const Rounding& rounding) const {
    if constexpr (!Rounding::kRounds) {
      SLOTWISE_UNROLL
      for (std::uint32_t v = 0; v < kVectors; ++v) {
        if (Has(v))
          ApplyToVector(optimizer, record, state, before, gradients[v], v,
                        [](float weight, std::uint32_t) { return weight; });
      }
    } else if (!rounding.by_chance) {
      SLOTWISE_UNROLL
      for (std::uint32_t v = 0; v < kVectors; ++v) {
        if (Has(v))
          ApplyToVector(optimizer, record, state, before, gradients[v], v,
                        [](float weight, std::uint32_t) { return Rounding::ToNearest(weight); });
      }
    } else {
      // Vectors whose elements have their bits in one draw.
      constexpr std::uint32_t kApart = Tile::kLanes * kVectorFloats;
      constexpr std::uint32_t kOfADraw = kApart == 32 ? 2 : kApart == 1 ? 4 : 1;
      auto draw = rounding.Draw(first);
      SLOTWISE_UNROLL
      for (std::uint32_t v = 0; v < kVectors; ++v) {
        if (v > 0 && v % kOfADraw == 0) draw = rounding.Draw(Element(v));
        const auto bits = Rounding::BitsOf(draw, Element(v));
        const std::uint32_t in_four = kVectorFloats == 4 ? 0 : Element(v) % 4;
        if (Has(v))
          ApplyToVector(optimizer, record, state, before, gradients[v], v,
                        [&bits, in_four](float weight, std::uint32_t k) {
                          return Rounding::ByChance(bits.Of(in_four + k), weight);
                        });
      }
    }
  }

 private:
  // REQUIRES: Has(v).
  template <class Optimizer, class T, class Round>
  SLOTWISE_HD void ApplyToVector(const Optimizer& optimizer, T* record, float* state,
                                 const Record<1 + Optimizer::kStates>& before, Vector gradient,
                                 std::uint32_t v, const Round& round) const {
    constexpr std::uint32_t kArrays = 1 + Optimizer::kStates;
    float g[kVectorFloats];
    float elements[kArrays * kVectorFloats];  // a record of one vector
    Unpack(gradient, g);
    for (std::size_t a = 0; a < kArrays; ++a) Unpack(before.arrays[a][v], elements + a * kVectorFloats);
    for (std::uint32_t k = 0; k < kVectorFloats; ++k) {
      optimizer(elements + k, elements + kVectorFloats + k, kVectorFloats, g[k],
                [&round, k](float weight) { return round(weight, k); });
    }
    Vector after;
    Pack(elements, after);
    StoreExactVector(record + Element(v), after);
    for (std::size_t a = 1; a < kArrays; ++a) {
      Pack(elements + a * kVectorFloats, after);
      StoreVector(state + (a - 1) * dim + Element(v), after);
    }
  }

  SLOTWISE_HD constexpr bool Has(std::uint32_t vector) const { return kWhole || Element(vector) < dim; }
  SLOTWISE_HD constexpr std::uint32_t Element(std::uint32_t vector) const {
    return first + vector * Tile::kLanes * kVectorFloats;
  }
};

// The type of this lane's vectors of a chunk, in registers.
template <class Chunk>
using Vectors = typename Chunk::Vector[Chunk::kVectors];

// Calls visit(chunk) for each chunk of a row of `dim` elements.
template <class Tile, class Visit>
SLOTWISE_HD void ForEachChunk(Tile tile, std::uint32_t dim, Visit visit) {
  constexpr std::uint32_t kVectorFloats = kFloatsOf<typename Tile::Vector>;
  constexpr std::uint32_t kStep = Tile::kLanes * Tile::kVectors * kVectorFloats;
  const std::uint32_t mine = tile.lane() * kVectorFloats;
  std::uint32_t base = 0;
  for (; base + kStep <= dim; base += kStep) visit(TileChunk<Tile, true>{base + mine, dim});
  if (base < dim) visit(TileChunk<Tile, false>{base + mine, dim});
}

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_PORTABLE_H_
