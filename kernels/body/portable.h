// What lets an algorithm be written once for the CPU and for CUDA: a function marker, and the tile.
//
// A tile is the lanes that work on one row together. A row's elements are cut into chunks; a lane holds kElements of
// a chunk, those at first, first + kLanes, first + 2·kLanes, ... On the CPU a tile is one lane and a chunk is
// contiguous, so loops over it become vector instructions; on CUDA neighbouring lanes touch neighbouring elements, so
// loads coalesce. An element is always computed by one lane, in one order: the tile never shows in the result.
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

// The CPU's tile: one lane, 16 floats at a time (a cache line). Sync() waits for the tile's other lanes, and makes what
// they wrote visible.
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

// This lane's elements of a chunk that lies wholly within the row ...
template <class Tile>
struct WholeChunk {
  std::uint32_t first;
  SLOTWISE_HD static constexpr bool Has(std::uint32_t) { return true; }
  SLOTWISE_HD constexpr std::uint32_t Element(std::uint32_t k) const { return first + k * Tile::kLanes; }
};

// ... and of the last one, where the row ends before the chunk does.
template <class Tile>
struct PartChunk {
  std::uint32_t first;
  std::uint32_t dim;
  SLOTWISE_HD constexpr bool Has(std::uint32_t k) const { return Element(k) < dim; }
  SLOTWISE_HD constexpr std::uint32_t Element(std::uint32_t k) const { return first + k * Tile::kLanes; }
};

// Calls visit(chunk) for each chunk of a row of `dim` elements. Loops in `visit` run k over [0, Tile::kElements) and
// skip those the chunk has not; for whole chunks that test vanishes.
template <class Tile, class Visit>
SLOTWISE_HD void ForEachChunk(Tile tile, std::uint32_t dim, Visit visit) {
  constexpr std::uint32_t kStep = Tile::kLanes * Tile::kElements;
  std::uint32_t base = 0;
  for (; base + kStep <= dim; base += kStep) visit(WholeChunk<Tile>{base + tile.lane()});
  if (base < dim) visit(PartChunk<Tile>{base + tile.lane(), dim});
}

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_PORTABLE_H_
