// This header has the CUDA backend's tile, and the kernels of its launches: each calls a body of kernels/body
// for every index.
#ifndef SLOTWISE_KERNELS_BACKEND_CUDA_LAUNCH_CUH_
#define SLOTWISE_KERNELS_BACKEND_CUDA_LAUNCH_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/body/portable.h"

namespace slotwise {

// The number of threads in a block, for launches that do not say otherwise.
inline constexpr std::uint32_t kThreads = 256;

// `Lanes` neighbouring lanes of a warp; each holds `N` vectors of a chunk.
template <std::uint32_t Lanes, class V, std::uint32_t N>
struct CudaTile {
  static constexpr std::uint32_t kLanes = Lanes;
  using Vector = V;
  static constexpr std::uint32_t kVectors = N;
  static constexpr std::uint32_t kRowsInFlight = 4;
  SLOTWISE_HD static std::uint32_t lane() {
#ifdef __CUDA_ARCH__
    return threadIdx.x % Lanes;
#else
    return 0;
#endif
  }
  SLOTWISE_HD static void Sync() {
#ifdef __CUDA_ARCH__
    __syncwarp(Mask());
#endif
  }
  SLOTWISE_HD static std::uint32_t From(std::uint32_t lane, std::uint32_t x) {
#ifdef __CUDA_ARCH__
    return __shfl_sync(Mask(), x, static_cast<int>(lane), Lanes);
#else
    return (void)lane, x;
#endif
  }
  // REQUIRES: blocks of at most kThreads threads.
  template <std::uint32_t kFloats>
  SLOTWISE_HD static float* Memory() {
#ifdef __CUDA_ARCH__
    // There are four floats more, so that the tiles of a warp read from different banks.
    constexpr std::uint32_t kPadded = (kFloats + 3) / 4 * 4 + 4;
    __shared__ alignas(16) float memory[kThreads / Lanes * kPadded];
    return memory + threadIdx.x / Lanes * kPadded;
#else
    return nullptr;
#endif
  }

 private:
#ifdef __CUDA_ARCH__
  // Returns the mask of the tile's lanes among the warp's.
  __device__ static unsigned Mask() {
    constexpr unsigned kAll = Lanes == 32 ? ~0U : (1U << Lanes % 32) - 1;
    return kAll << (threadIdx.x % 32 / Lanes * Lanes);
  }
#endif
};

template <class F>
__global__ void ForEachUpToKernel(const std::uint32_t* n, F f) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < *n) f(i);
}

template <class Index, class F>
__global__ void ForEachKernel(Index n, F f) {
  const auto i = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) f(i);
}

// Writes the value of f() to the host. A copy would arrive later, because another engine does copies.
template <class F, class Answer>
__global__ void AskKernel(F f, Answer* on_host) {
  *on_host = f();
}

// Writes the count to the host likewise, and sets the counter back to 0.
template <class Count>
__global__ void TakeCountKernel(Count* counter, Count* on_host) {
  *on_host = *counter;
  *counter = 0;
}

// Indices [0, *count), or [0, most) if `count` is null.
struct UpTo {
  std::uint32_t most;
  const std::uint32_t* count;
  __device__ std::uint32_t n() const { return count == nullptr ? most : *count; }
};

// A warp takes numbers for all its threads that want one.
template <class F>
__global__ void ForEachSeldomNumberedKernel(UpTo up_to, std::uint32_t* counter, F f) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= up_to.n()) return;
  const auto outcome = f(i);
  if (!outcome) return;
  const unsigned here = __activemask();
  const unsigned before = __popc(here & ((1U << threadIdx.x % 32) - 1));
  std::uint32_t first = 0;
  if (before == 0) first = atomicAdd(counter, static_cast<unsigned>(__popc(here)));
  f.Number(i, outcome, __shfl_sync(here, first, __ffs(static_cast<int>(here)) - 1) + before);
}

// Where most threads want a number, a block takes numbers for all its threads: warps would wait for each
// other at the counter. The block is small, because all of it waits for its slowest thread.
inline constexpr std::uint32_t kNumberingThreads = 64;
template <class F>
__global__ void ForEachOftenNumberedKernel(UpTo up_to, std::uint32_t* counter, F f) {
  using Outcome = decltype(f(std::uint32_t{}));
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  Outcome outcome{};
  bool wanted = false;
  if (i < up_to.n()) {
    outcome = f(i);
    wanted = static_cast<bool>(outcome);
  }
  __shared__ std::uint32_t first[kNumberingThreads / 32];
  const unsigned warp = threadIdx.x / 32;
  const unsigned in_warp = __ballot_sync(~0U, wanted);
  if (threadIdx.x % 32 == 0) first[warp] = static_cast<std::uint32_t>(__popc(in_warp));
  __syncthreads();
  if (threadIdx.x == 0) {
    std::uint32_t total = 0;
    for (const std::uint32_t count : first) total += count;
    std::uint32_t at = total == 0 ? 0 : atomicAdd(counter, total);
    for (std::uint32_t& place : first) {
      const std::uint32_t count = place;
      place = at;
      at += count;
    }
  }
  __syncthreads();
  if (wanted) f.Number(i, outcome, first[warp] + __popc(in_warp & ((1U << threadIdx.x % 32) - 1)));
}

// Counts in shared memory first: a block goes to each of the device's counters once.
template <std::uint32_t kBins, class F>
__global__ void HistogramKernel(std::uint32_t n, F f, unsigned long long* counts) {
  __shared__ std::uint32_t mine[kBins];
  for (std::uint32_t b = threadIdx.x; b < kBins; b += blockDim.x) mine[b] = 0;
  __syncthreads();
  const std::uint64_t threads = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads) {
    const std::uint32_t bin = f(static_cast<std::uint32_t>(i));
    if (bin < kBins) atomicAdd(&mine[bin], 1U);
  }
  __syncthreads();
  for (std::uint32_t b = threadIdx.x; b < kBins; b += blockDim.x) {
    if (mine[b] > 0) atomicAdd(&counts[b], static_cast<unsigned long long>(mine[b]));
  }
}

template <class Tile, class F>
__global__ void ForEachTileKernel(std::uint32_t n, F f) {
  const std::uint64_t i = (std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x) / Tile::kLanes;
  if (i < n) f(Tile{}, static_cast<std::uint32_t>(i));
}

// A tile goes through `run` indices.
template <class Tile, class F>
__global__ void ForEachRunKernel(std::uint32_t n, std::uint32_t run, F f) {
  const std::uint64_t tile = (std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x) / Tile::kLanes;
  const std::uint64_t first = tile * run;
  if (first >= n) return;
  const std::uint64_t last = first + run;
  f(Tile{}, static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(last < n ? last : n));
}

// Does the same, with so few registers a thread that a processor has room for F::kLeastBlocks blocks.
template <class Tile, class F>
__global__ void __launch_bounds__(kThreads, F::kLeastBlocks)
    ForEachRunBoundedKernel(std::uint32_t n, std::uint32_t run, F f) {
  const std::uint64_t tile = (std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x) / Tile::kLanes;
  const std::uint64_t first = tile * run;
  if (first >= n) return;
  const std::uint64_t last = first + run;
  f(Tile{}, static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(last < n ? last : n));
}

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_BACKEND_CUDA_LAUNCH_CUH_
