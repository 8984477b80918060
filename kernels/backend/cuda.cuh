// The CUDA backend gives each index a thread and each row a tile of 1 to 32 lanes of a warp. CUB scans,
// selects, sorts and sums.
//
// Everything is enqueued on the queue's stream. Functions that return a value to the host wait for it.
#ifndef SLOTWISE_KERNELS_BACKEND_CUDA_CUH_
#define SLOTWISE_KERNELS_BACKEND_CUDA_CUH_

#include <cuda_runtime.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_reduce.cuh>
#include <cub/device/device_scan.cuh>
#include <cub/device/device_select.cuh>
#include <cub/version.cuh>
#include <stdexcept>
#include <type_traits>

#include "kernels/backend/concept.h"
#include "kernels/backend/cuda_growing.cuh"
#include "kernels/backend/cuda_launch.cuh"
#include "kernels/backend/cuda_memory.cuh"

namespace slotwise {

struct ItemOrZero {
  const std::uint32_t* items;
  std::uint32_t n;
  SLOTWISE_HD std::uint32_t operator()(std::uint32_t i) const { return i < n ? items[i] : 0; }
};

template <class T>
struct ReadValue {
  const T* value;
  SLOTWISE_HD T operator()() const { return *value; }
};

struct AddDigestSums {
  SLOTWISE_HD DigestSums operator()(const DigestSums& a, const DigestSums& b) const {
    return {a.low + b.low, a.high + b.high};
  }
};

class CudaStream final : public Stream {
 public:
  // Makes a stream on the current device. Of streams that want the same processors the one of the lower
  // number goes first.
  explicit CudaStream(int priority = 0) : queue_(priority) {}

  CudaQueue& queue() { return queue_; }
  void OrderAfter(Stream& other) override { queue_.OrderAfter(static_cast<CudaStream&>(other).queue_); }
  void Copy(void* to, const void* from, std::size_t bytes) override {
    if (bytes == 0 || to == from) return;
    SLOTWISE_CUDA_TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, queue_.stream()));
  }
  void Convert(ConstNumbers from, std::size_t size, Numbers to) override;
  void SumOverRanks(const RankBlocks& blocks, float* sum) override;
  void AddToEach(std::uint32_t* to, const std::uint32_t* from, std::size_t count, std::uint32_t add) override;
  void Wait() override { queue_.Wait(); }
  bool IsDone() override { return IsReady(cudaStreamQuery(queue_.stream())); }
  void* NativeHandle() const override { return queue_.stream(); }

 private:
  CudaQueue queue_;
};

struct CudaBackend {
  using Queue = CudaQueue;
  using Stream = CudaStream;
  using HostCopy = CudaHostCopy;
  template <class T>
  using Scratch = CudaScratch<T>;
  template <class T>
  using Growing = CudaGrowing<T>;
  struct TableBytes {  // the device itself knows what is free
    void Set(std::size_t /*bytes*/) {}
  };
  template <class T>
  using Answer = CudaAnswer<T>;

  // Each lane then has one vector of a row, and neighbouring lanes of different rows read neighbouring
  // memory: with more vectors a lane, an H200 took up to a sixth longer.
  static constexpr std::uint32_t kRowOfNumbers = 32;
  static constexpr std::uint64_t kCellsMovedABatch = std::uint64_t{1} << 20;
  static constexpr std::uint64_t kCellsFreedABatch = std::uint64_t{1} << 26;
  static constexpr bool kSharesHostMemory = false;

  // Host code never runs these; they are marked for both sides because the bodies that call them are.
  struct Atomics {
    template <class Word>
    SLOTWISE_HD static Word Load(const Word* word) {
      return *static_cast<const volatile Word*>(word);
    }
    template <class Word>
    SLOTWISE_HD static void Store(Word* word, std::type_identity_t<Word> value) {
      *static_cast<volatile Word*>(word) = value;
    }
    SLOTWISE_HD static std::uint64_t CompareExchange(std::uint64_t* word, std::uint64_t expected,
                                                     std::uint64_t desired) {
#ifdef __CUDA_ARCH__
      return atomicCAS(reinterpret_cast<unsigned long long*>(word), expected, desired);
#else
      return (void)desired, *word ^ expected;
#endif
    }
    SLOTWISE_HD static void Add(std::uint64_t* word, std::uint64_t number) {
#ifdef __CUDA_ARCH__
      atomicAdd(reinterpret_cast<unsigned long long*>(word), number);
#else
      (void)word, (void)number;
#endif
    }
  };

  static void OrderAfter(Queue& queue, Queue& before) { queue.OrderAfter(before); }
  static std::size_t MemoryForTables(Queue& queue) { return queue.MemoryForTables(); }
  static std::size_t KeptBesideARow() { return 0; }

  template <class Index, class F>
  static void ForEach(Queue& queue, Index n, F f) {
    if (n == 0) return;
    ForEachKernel<<<Blocks(n), kThreads, 0, queue.stream()>>>(n, f);
    SLOTWISE_CUDA_TRY(cudaGetLastError());
  }

  template <class F>
  static void ForEachUpTo(Queue& queue, std::uint32_t most, const std::uint32_t* count, F f) {
    if (most == 0) return;
    ForEachUpToKernel<<<Blocks(most), kThreads, 0, queue.stream()>>>(count, f);
    SLOTWISE_CUDA_TRY(cudaGetLastError());
  }

  template <class F>
  static std::uint32_t ForEachNumbered(Queue& queue, std::uint32_t n, F f) {
    if (n == 0) return 0;
    auto* const count = static_cast<std::uint32_t*>(queue.pinned());
    LaunchNumbered(queue, {n, nullptr}, f, count);
    queue.Wait();
    return *count;
  }
  template <class F>
  static void ForEachNumbered(Queue& queue, std::uint32_t most, const std::uint32_t* count, F f,
                              Answer<std::uint32_t>& answer) {
    LaunchNumbered(queue, {most, count}, f, answer.Begin(queue));
  }

  template <class F>
  static void ForEachTile(Queue& queue, std::uint32_t n, std::uint32_t dim, F f) {
    if (n == 0) return;
    WithTile<RowsHeld<F>()>(dim, [&]<class Tile>(Tile) {
      ForEachTileKernel<Tile><<<Blocks(std::uint64_t{n} * Tile::kLanes), kThreads, 0, queue.stream()>>>(n, f);
    });
    SLOTWISE_CUDA_TRY(cudaGetLastError());
  }

  // A tile takes one index if there are few: more tiles are better than longer runs then.
  template <class F>
  static void ForEachRun(Queue& queue, std::uint32_t n, std::uint32_t dim, F f) {
    if (n == 0) return;
    WithTile<RowsHeld<F>()>(dim, [&]<class Tile>(Tile) {
      constexpr std::uint32_t kRun = Tile::kLanes < 8 ? Tile::kLanes : 8;
      const std::uint64_t threads = (std::uint64_t{n} + kRun - 1) / kRun * Tile::kLanes;
      const bool many = threads >= kThreadsOfDevice;
      const std::uint32_t blocks = Blocks(many ? threads : std::uint64_t{n} * Tile::kLanes);
      if constexpr (requires { requires F::kLeastBlocks > 0; }) {
        ForEachRunBoundedKernel<Tile><<<blocks, kThreads, 0, queue.stream()>>>(n, many ? kRun : 1, f);
      } else {
        ForEachRunKernel<Tile><<<blocks, kThreads, 0, queue.stream()>>>(n, many ? kRun : 1, f);
      }
    });
    SLOTWISE_CUDA_TRY(cudaGetLastError());
  }

  static void ExclusiveScan(Queue& queue, const std::uint32_t* in, std::uint32_t n, std::uint32_t* out) {
    // The scan has one item more than asked for, whose place receives the total.
    const std::uint64_t count = Countable(std::uint64_t{n} + 1);
    const auto items =
        thrust::make_transform_iterator(thrust::counting_iterator<std::uint32_t>(0), ItemOrZero{in, n});
    WithTemporary(queue, [&](void* memory, std::size_t& bytes) {
      return cub::DeviceScan::ExclusiveSum(memory, bytes, items, out, count, queue.stream());
    });
  }

  template <class Keep>
  static void SelectKeys(Queue& queue, const Key* keys, std::uint32_t n, Key* out, std::uint32_t* count,
                         Keep keep) {
    Select(queue, keys, n, out, count, keep);
  }

  template <class Keep>
  static void SelectIndices(Queue& queue, std::uint32_t n, std::uint32_t* out, std::uint32_t* count,
                            Keep keep) {
    Select(queue, thrust::counting_iterator<std::uint32_t>(0), n, out, count, keep);
  }

  static void SortPairs(Queue& queue, PairBuffers& pairs, std::uint32_t n, std::uint32_t bits) {
    if (n == 0) return;
    cub::DoubleBuffer<std::uint32_t> keys(pairs.keys[pairs.current], pairs.keys[1 - pairs.current]);
    cub::DoubleBuffer<std::uint32_t> values(pairs.values[pairs.current], pairs.values[1 - pairs.current]);
    WithTemporary(queue, [&](void* memory, std::size_t& bytes) {
      return cub::DeviceRadixSort::SortPairs(memory, bytes, keys, values, n, 0, static_cast<int>(bits),
                                             queue.stream());
    });
    if (keys.selector != 0) pairs.current = 1 - pairs.current;
  }

  template <std::uint32_t kBins, class F>
  static void Histogram(Queue& queue, std::uint32_t n, F f, std::uint64_t* counts) {
    constexpr std::uint32_t kMostBlocks = 2048;  // several for each multiprocessor
    CudaMemory sums(queue.stream(), kBins * sizeof(std::uint64_t));
    SLOTWISE_CUDA_TRY(cudaMemsetAsync(sums.data(), 0, kBins * sizeof(std::uint64_t), queue.stream()));
    if (n > 0) {
      HistogramKernel<kBins><<<std::min(Blocks(n), kMostBlocks), kThreads, 0, queue.stream()>>>(
          n, f, static_cast<unsigned long long*>(sums.data()));
      SLOTWISE_CUDA_TRY(cudaGetLastError());
    }
    CopyOut(queue, counts, static_cast<const std::uint64_t*>(sums.data()), kBins);
  }

  template <class F>
  static DigestSums Sum(Queue& queue, std::size_t n, F f) {
    CudaMemory result(queue.stream(), sizeof(DigestSums));
    const auto values = thrust::make_transform_iterator(thrust::counting_iterator<std::uint64_t>(0), f);
    WithTemporary(queue, [&](void* memory, std::size_t& bytes) {
      return cub::DeviceReduce::Reduce(memory, bytes, values, static_cast<DigestSums*>(result.data()), n,
                                       AddDigestSums{}, DigestSums{}, queue.stream());
    });
    return Get(queue, static_cast<const DigestSums*>(result.data()));
  }

  template <class F>
  static auto Ask(Queue& queue, F f) {
    using Answer = decltype(f());
    static_assert(sizeof(Answer) <= CudaQueue::kPinnedBytes && std::is_trivially_copyable_v<Answer>);
    auto* const answer = static_cast<Answer*>(queue.pinned());
    AskKernel<<<1, 1, 0, queue.stream()>>>(f, answer);
    SLOTWISE_CUDA_TRY(cudaGetLastError());
    queue.Wait();
    return *answer;
  }
  template <class F, class T>
  static void Ask(Queue& queue, F f, Answer<T>& answer) {
    AskKernel<<<1, 1, 0, queue.stream()>>>(f, answer.Begin(queue));
    SLOTWISE_CUDA_TRY(cudaGetLastError());
  }
  template <class T>
  static T Get(Queue& queue, const T* value) {
    return Ask(queue, ReadValue<T>{value});
  }
  template <class T>
  static void Get(Queue& queue, const T* value, Answer<T>& answer) {
    Ask(queue, ReadValue<T>{value}, answer);
  }

  template <class T>
  static void CopyIn(Queue& queue, T* to, const T* from, std::size_t n) {
    Copy(queue, to, from, n * sizeof(T), cudaMemcpyHostToDevice);
  }
  template <class T>
  static void CopyOut(Queue& queue, T* to, const T* from, std::size_t n) {
    Copy(queue, to, from, n * sizeof(T), cudaMemcpyDeviceToHost);
  }

  // Waits.
  static void Copy(Queue& queue, void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    if (bytes == 0) return;
    SLOTWISE_CUDA_TRY(cudaMemcpyAsync(to, from, bytes, kind, queue.stream()));
    queue.Wait();
  }

 private:
  // About how many threads a large device runs at once, if each has as many registers as pooling takes.
  static constexpr std::uint64_t kThreadsOfDevice = std::uint64_t{1} << 16;

  // Writes the number of numbered indices to `count`, in pinned memory.
  template <class F>
  static void LaunchNumbered(Queue& queue, UpTo up_to, F f, std::uint32_t* count) {
    std::uint32_t* const counter = queue.counter();
    if (up_to.most > 0) {
      if constexpr (F::kNumbersMost) {
        const std::uint32_t blocks = (up_to.most - 1) / kNumberingThreads + 1;
        ForEachOftenNumberedKernel<<<blocks, kNumberingThreads, 0, queue.stream()>>>(up_to, counter, f);
      } else {
        ForEachSeldomNumberedKernel<<<Blocks(up_to.most), kThreads, 0, queue.stream()>>>(up_to, counter, f);
      }
      SLOTWISE_CUDA_TRY(cudaGetLastError());
    }
    TakeCountKernel<<<1, 1, 0, queue.stream()>>>(counter, count);
    SLOTWISE_CUDA_TRY(cudaGetLastError());
  }

  static std::uint32_t Blocks(std::uint64_t threads) {
    return static_cast<std::uint32_t>((threads + kThreads - 1) / kThreads);
  }

  // Returns how many rows a body holds in registers at once: a tile of more lanes then holds less of each.
  template <class F>
  static constexpr std::uint32_t RowsHeld() {
    if constexpr (requires { F::kRowsHeld; }) {
      return F::kRowsHeld;
    } else {
      return 1;
    }
  }

  // Rows of whole Float4s are loaded as such, a long row by 8 lanes in several pieces each, so that a warp
  // has four rows under way. REQUIRES: rows, gradients and outputs are aligned to 16 bytes then.
  template <std::uint32_t kRowsHeld, class Launch>
  static void WithTile(std::uint32_t dim, Launch launch) {
    using body::Float4;
    if (dim % 4 != 0) {
      return dim < 4 ? launch(CudaTile<1, float, 4>{}) : launch(CudaTile<32, float, 4>{});
    }
    if (dim <= 4) return launch(CudaTile<1, Float4, 1>{});
    if (dim <= 16) return launch(CudaTile<4, Float4, 1>{});
    if (dim <= 32) return launch(CudaTile<8, Float4, 1>{});
    if constexpr (kRowsHeld == 1) {
      return dim <= 64 ? launch(CudaTile<8, Float4, 2>{}) : launch(CudaTile<8, Float4, 4>{});
    } else if constexpr (kRowsHeld == 2) {
      return dim <= 64 ? launch(CudaTile<16, Float4, 1>{}) : launch(CudaTile<16, Float4, 2>{});
    } else {
      return dim <= 64 ? launch(CudaTile<16, Float4, 1>{}) : launch(CudaTile<32, Float4, 1>{});
    }
  }

  // CUDA 12's CUB takes an int as the number of items to scan or select, and would cut a larger one.
  static std::uint64_t Countable(std::uint64_t items) {
    if (CUB_VERSION < 300000 && items > INT_MAX)
      throw std::length_error("2^31 items or more in one call of CUB: that takes CUDA 13");
    return items;
  }

  // CUB is asked for the size of its scratch first, and then runs.
  template <class Algorithm>
  static void WithTemporary(Queue& queue, Algorithm algorithm) {
    std::size_t bytes = 0;
    SLOTWISE_CUDA_TRY(algorithm(nullptr, bytes));
    void* memory = queue.Temporary(bytes);
    SLOTWISE_CUDA_TRY(algorithm(memory, bytes));
  }

  template <class In, class Out, class Keep>
  static void Select(Queue& queue, In in, std::uint32_t n, Out out, std::uint32_t* count, Keep keep) {
    if (n == 0) {
      SLOTWISE_CUDA_TRY(cudaMemsetAsync(count, 0, sizeof(*count), queue.stream()));
      return;
    }
    const auto items = static_cast<std::int64_t>(Countable(n));
    WithTemporary(queue, [&](void* memory, std::size_t& bytes) {
      return cub::DeviceSelect::If(memory, bytes, in, out, count, items, keep, queue.stream());
    });
  }
};

static_assert(Backend<CudaBackend>);

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_BACKEND_CUDA_CUH_
