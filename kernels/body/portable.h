// What lets an algorithm be written once for the CPU and for CUDA: a function marker, and the tile.
//
// A tile is the lanes that work on one row together. A row's elements are cut into chunks; of a chunk a lane holds some
// parts: a float each, at first, first + kLanes, first + 2·kLanes, ... On CUDA neighbouring lanes so touch neighbouring
// elements, and loads coalesce. The CPU's own tile (backend/cpu_tile.h) is one lane whose parts are vector registers.
// An element is always computed by one lane, in one order: the tile never shows in the result.
#ifndef SLOTWISE_KERNELS_BODY_PORTABLE_H_
#define SLOTWISE_KERNELS_BODY_PORTABLE_H_

#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#define SLOTWISE_HD __host__ __device__
#else
#define SLOTWISE_HD
#endif

namespace slotwise::body {

// One lane, 16 floats at a time. Sync() waits for the tile's other lanes, and makes what they wrote visible.
struct SerialTile {
  static constexpr std::uint32_t kLanes = 1;
  static constexpr std::uint32_t kElements = 16;
  SLOTWISE_HD static constexpr std::uint32_t lane() { return 0; }
  SLOTWISE_HD static constexpr void Sync() {}
};

// For the CPU alone: asks for the cache lines of data that will be read soon. A body of a launch may have a
// `Prefetch(i)` and a `kAhead`: the CPU backend calls it that many indices before it calls the body with i, so that
// memory is under way while others are worked on. On CUDA other warps fill that time, and nobody calls it.
inline void PrefetchBytes(const void* data, std::size_t bytes) {
  constexpr std::size_t kCacheLineBytes = 64;
  const char* begin = static_cast<const char*>(data);
  for (std::size_t at = 0; at < bytes; at += kCacheLineBytes) {
    __builtin_prefetch(begin + at);
    asm volatile(
        "");  // a function that only prefetches has no effect in GCC's eyes, which would drop calls to it
  }
}

// This lane's part of a chunk that lies wholly within the row: kParts parts, loaded from and stored to rows.
template <class Tile>
struct WholeChunk {
  using Part = float;
  static constexpr std::uint32_t kParts = Tile::kElements;
  std::uint32_t first;

  SLOTWISE_HD Part Load(const float* row, std::uint32_t part) const { return row[Element(part)]; }
  SLOTWISE_HD void Store(float* row, std::uint32_t part, Part value) const { row[Element(part)] = value; }

  // visit(element, its value) for this lane's elements.
  template <class Visit>
  SLOTWISE_HD void ForEachElement(const Part (&values)[kParts], Visit visit) const {
    for (std::uint32_t p = 0; p < kParts; ++p) visit(Element(p), values[p]);
  }

 private:
  SLOTWISE_HD constexpr std::uint32_t Element(std::uint32_t part) const {
    return first + part * Tile::kLanes;
  }
};

// The same of the last chunk, where the row ends before the chunk does: what is beyond loads as 0 and is not stored.
template <class Tile>
struct PartChunk {
  using Part = float;
  static constexpr std::uint32_t kParts = Tile::kElements;
  std::uint32_t first;
  std::uint32_t dim;

  SLOTWISE_HD Part Load(const float* row, std::uint32_t part) const {
    return Has(part) ? row[Element(part)] : 0.0F;
  }
  SLOTWISE_HD void Store(float* row, std::uint32_t part, Part value) const {
    if (Has(part)) row[Element(part)] = value;
  }
  template <class Visit>
  SLOTWISE_HD void ForEachElement(const Part (&values)[kParts], Visit visit) const {
    for (std::uint32_t p = 0; p < kParts; ++p) {
      if (Has(p)) visit(Element(p), values[p]);
    }
  }

 private:
  SLOTWISE_HD constexpr bool Has(std::uint32_t part) const { return Element(part) < dim; }
  SLOTWISE_HD constexpr std::uint32_t Element(std::uint32_t part) const {
    return first + part * Tile::kLanes;
  }
};

// Calls visit(chunk) for each chunk of a row of `dim` elements.
template <class Tile, class Visit>
SLOTWISE_HD void ForEachChunk(Tile tile, std::uint32_t dim, Visit visit) {
  constexpr std::uint32_t kStep = Tile::kLanes * Tile::kElements;
  std::uint32_t base = 0;
  for (; base + kStep <= dim; base += kStep) visit(WholeChunk<Tile>{base + tile.lane()});
  if (base < dim) visit(PartChunk<Tile>{base + tile.lane(), dim});
}

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_PORTABLE_H_
