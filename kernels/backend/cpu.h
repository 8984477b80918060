// The CPU backend runs launches on oneTBB's threads, with one lane a tile.
//
// Work is cut into chunks that depend on its size and the number of threads; results do not depend on the
// cut.
#ifndef SLOTWISE_KERNELS_BACKEND_CPU_H_
#define SLOTWISE_KERNELS_BACKEND_CPU_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/backend/concept.h"
#include "kernels/backend/cpu_hash.h"
#include "kernels/backend/cpu_memory.h"
#include "kernels/backend/cpu_threads.h"
#include "kernels/backend/cpu_tile.h"
#include "kernels/body/portable.h"
#include "kernels/shard.h"

namespace slotwise {

struct CpuPair {
  std::uint32_t key;
  std::uint32_t value;
};

// A launch returns when it is done, so a queue needs no waiting.
struct CpuQueue {
  explicit CpuQueue(int thread_count) : threads(thread_count) {}
  CpuThreads threads;
  // The algorithms below work in this memory, which is kept so that a launch allocates nothing.
  CpuScratch<std::uint32_t> places;
  CpuScratch<CpuPair> sorted[2];
};

// A launch returns when it is done, so the answer is there already.
template <class T>
struct CpuAnswer {
  T value{};
  T Get(CpuQueue& /*queue*/) const { return value; }
};

// A stream of work on a queue that all streams of the device share: work is done when the call returns.
class CpuStream final : public Stream {
 public:
  explicit CpuStream(CpuQueue& queue) : queue_(queue) {}

  CpuQueue& queue() { return queue_; }
  void OrderAfter(Stream& /*other*/) override {}
  void Copy(void* to, const void* from, std::size_t bytes) override {
    if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
  }
  void Convert(ConstNumbers from, std::size_t size, Numbers to) override;
  void SumOverRanks(const RankBlocks& blocks, float* sum) override;
  void AddToEach(std::uint32_t* to, const std::uint32_t* from, std::size_t count, std::uint32_t add) override;
  void Wait() override {}
  bool IsDone() override { return true; }
  void* NativeHandle() const override { return nullptr; }

 private:
  CpuQueue& queue_;
};

struct CpuBackend {
  using Queue = CpuQueue;
  using Stream = CpuStream;
  template <class T>
  using Scratch = CpuScratch<T>;
  template <class T>
  using Growing = CpuGrowing<T>;
  using TableBytes = slotwise::TableBytes;
  template <class T>
  using Answer = CpuAnswer<T>;

  static constexpr std::uint32_t kRowOfNumbers = 1024;
  static constexpr std::uint64_t kCellsMovedABatch = std::uint64_t{1} << 16;
  static constexpr std::uint64_t kCellsFreedABatch = std::uint64_t{1} << 17;
  static constexpr bool kSharesHostMemory = true;

  struct Atomics {
    template <class Word>
    static Word Load(const Word* word) {
      return __atomic_load_n(word, __ATOMIC_RELAXED);
    }
    template <class Word>
    static void Store(Word* word, std::type_identity_t<Word> value) {
      __atomic_store_n(word, value, __ATOMIC_RELAXED);
    }
    static std::uint64_t CompareExchange(std::uint64_t* word, std::uint64_t expected, std::uint64_t desired) {
      __atomic_compare_exchange_n(word, &expected, desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
      return expected;
    }
    static void Add(std::uint64_t* word, std::uint64_t number) {
      __atomic_fetch_add(word, number, __ATOMIC_RELAXED);
    }
  };

  static void OrderAfter(Queue& /*queue*/, Queue& /*before*/) {}
  static std::size_t MemoryForTables(Queue& /*queue*/) { return HostMemoryForTables(); }
  static std::size_t KeptBesideARow() { return slotwise::KeptBesideARow(); }

  template <class Index, class F>
  static void ForEach(Queue& queue, Index n, F f) {
    InParallel(queue, n, kGrain, [&](Index begin, Index end) { InOrder(begin, end, f, f); });
  }

  template <class F>
  static void ForEachUpTo(Queue& queue, std::uint32_t /*most*/, const std::uint32_t* count, F f) {
    ForEach(queue, *count, f);
  }

  // Outcomes wait in a small list, so that a thread goes to the counter once for many of them.
  template <class F>
  static std::uint32_t ForEachNumbered(Queue& queue, std::uint32_t n, F f) {
    constexpr std::uint32_t kMost = 64;
    using Outcome = decltype(f(n));
    std::atomic<std::uint32_t> numbered = 0;
    InParallel(queue, n, kGrain, [&](std::uint32_t begin, std::uint32_t end) {
      std::pair<std::uint32_t, Outcome> wanted[kMost];
      std::uint32_t count = 0;
      const auto number = [&] {
        const std::uint32_t first = numbered.fetch_add(count, std::memory_order_relaxed);
        for (std::uint32_t w = 0; w < count; ++w) f.Number(wanted[w].first, wanted[w].second, first + w);
        count = 0;
      };
      InOrder(begin, end, f, [&](std::uint32_t i, auto... hash) {
        const Outcome outcome = f(i, hash...);
        if (!outcome) return;
        wanted[count++] = {i, outcome};
        if (count == kMost) number();
      });
      if (count > 0) number();
    });
    return numbered;
  }

  template <class F>
  static void ForEachNumbered(Queue& queue, std::uint32_t most, const std::uint32_t* count, F f,
                              Answer<std::uint32_t>& answer) {
    answer.value = ForEachNumbered(queue, count == nullptr ? most : *count, f);
  }

  template <class F>
  static void ForEachTile(Queue& queue, std::uint32_t n, std::uint32_t dim, F f) {
    const std::uint32_t grain = std::max<std::uint32_t>(1, kGrain / (dim + 1));
    InParallel(queue, n, grain, [&](std::uint32_t begin, std::uint32_t end) {
      InOrder(begin, end, f, [&](std::uint32_t i) { f(CpuTile{}, i); });
    });
  }

  template <class F>
  static void ForEachRun(Queue& queue, std::uint32_t n, std::uint32_t dim, F f) {
    const std::uint32_t grain = std::max<std::uint32_t>(1, kGrain / (dim + 1));
    InParallel(queue, n, grain, [&](std::uint32_t begin, std::uint32_t end) {
      InOrder(begin, end, f, [&](std::uint32_t i) { f(CpuTile{}, i, i + 1); });
    });
  }

  static void ExclusiveScan(Queue& queue, const std::uint32_t* in, std::uint32_t n, std::uint32_t* out);

  template <class Keep>
  static void SelectKeys(Queue& queue, const Key* keys, std::uint32_t n, Key* out, std::uint32_t* count,
                         Keep keep) {
    *count = Select(
        queue, n, [=](std::uint32_t i) { return keep(keys[i]); },
        [=](std::uint32_t i, std::uint32_t place) { out[place] = keys[i]; });
  }

  template <class Keep>
  static void SelectIndices(Queue& queue, std::uint32_t n, std::uint32_t* out, std::uint32_t* count,
                            Keep keep) {
    *count = Select(queue, n, keep, [=](std::uint32_t i, std::uint32_t place) { out[place] = i; });
  }

  static void SortPairs(Queue& queue, PairBuffers& pairs, std::uint32_t n, std::uint32_t bits);

  template <std::uint32_t kBins, class F>
  static void Histogram(Queue& queue, std::uint32_t n, F f, std::uint64_t* counts) {
    constexpr std::uint32_t kGrainOfBins = 16 * kBins;  // a chunk adds up all bins in the end
    std::fill_n(counts, kBins, 0);
    InParallel(queue, n, kGrainOfBins, [&](std::uint32_t begin, std::uint32_t end) {
      std::vector<std::uint32_t> mine(kBins + 1);  // the last one counts what counts nowhere
      for (std::uint32_t i = begin; i < end; ++i) ++mine[std::min(f(i), kBins)];
      for (std::uint32_t b = 0; b < kBins; ++b) {
        if (mine[b] > 0) Atomics::Add(counts + b, mine[b]);
      }
    });
  }

  template <class F>
  static DigestSums Sum(Queue& queue, std::size_t n, F f) {
    std::atomic<std::uint64_t> low = 0;
    std::atomic<std::uint64_t> high = 0;
    InParallel(queue, n, kGrain, [&](std::size_t begin, std::size_t end) {
      DigestSums sums;
      for (std::size_t i = begin; i < end; ++i) {
        const DigestSums one = f(i);
        sums = {sums.low + one.low, sums.high + one.high};
      }
      low += sums.low;
      high += sums.high;
    });
    return {low, high};
  }

  template <class F>
  static auto Ask(Queue& /*queue*/, F f) {
    return f();
  }
  template <class F, class T>
  static void Ask(Queue& /*queue*/, F f, Answer<T>& answer) {
    answer.value = f();
  }
  static std::uint32_t Get(Queue& /*queue*/, const std::uint32_t* value) { return *value; }
  static void Get(Queue& /*queue*/, const std::uint32_t* value, Answer<std::uint32_t>& answer) {
    answer.value = *value;
  }

  class HostCopy {
   public:
    void Start(Queue& /*queue*/, const std::uint32_t* from, std::size_t n) { values_.assign(from, from + n); }
    bool IsDone() const { return true; }
    std::span<const std::uint32_t> Wait() const { return values_; }

   private:
    std::vector<std::uint32_t> values_;
  };

  template <class T>
  static void CopyIn(Queue& /*queue*/, T* to, const T* from, std::size_t n) {
    std::copy_n(from, n, to);
  }
  template <class T>
  static void CopyOut(Queue& /*queue*/, T* to, const T* from, std::size_t n) {
    std::copy_n(from, n, to);
  }

  // Cuts [0, n) into one chunk, or several of at least kGrain / 2; n and the number of threads decide.
  struct Chunks {
    Chunks(const Queue& queue, std::uint32_t n);
    std::uint32_t Begin(std::uint32_t chunk) const {
      return static_cast<std::uint32_t>(std::uint64_t{n} * chunk / count);
    }
    std::uint32_t n;
    std::uint32_t count;
  };

  // Calls visit(chunk, begin, end) for every chunk, in parallel.
  template <class Visit>
  static void ForEachChunk(Queue& queue, const Chunks& chunks, Visit visit) {
    InParallel(queue, chunks.count, 1, [&](std::uint32_t begin, std::uint32_t end) {
      for (std::uint32_t c = begin; c < end; ++c) visit(c, chunks.Begin(c), chunks.Begin(c + 1));
    });
  }

 private:
  // The number of steps of simple work that are worth a task.
  static constexpr std::uint32_t kGrain = 4096;

  // Calls visit(i) for i in [begin, end). A body that prefetches is told of each index kAhead indices before.
  template <class Index, class Body, class Visit>
  static void InOrder(Index begin, Index end, const Body& body, const Visit& visit) {
    if constexpr (requires { body.KeyOf(begin); }) {
      return InOrderWithHashes(begin, end, body, visit);
    } else if constexpr (requires { body.Prefetch(begin); }) {
      const Index ahead = std::min<Index>(Body::kAhead, end - begin);
      for (Index i = begin; i < begin + ahead; ++i) body.Prefetch(i);
      for (; begin < end - ahead; ++begin) {
        body.Prefetch(begin + ahead);
        visit(begin);
      }
    }
    for (; begin < end; ++begin) visit(begin);
  }

  // Does the same for a body that searches a hash table: Prefetch(i, hash) and visit(i, hash) get the hash of
  // KeyOf(i). Keys are hashed kAhead at a time.
  template <class Index, class Body, class Visit>
  static void InOrderWithHashes(Index begin, Index end, const Body& body, const Visit& visit) {
    constexpr Index kBlock = Body::kAhead;
    Key keys[kBlock] = {};
    std::uint64_t blocks[2][kBlock];
    // Writes the hashes of the indices from `first` on, and returns how many they are.
    const auto hash = [&](Index first, std::uint64_t* hashes) {
      const Index count = std::min<Index>(kBlock, end - first);
      for (Index j = 0; j < count; ++j) keys[j] = body.KeyOf(first + j);
      HashKeys(body.searched().hash_of, keys, static_cast<std::size_t>(count), hashes);
      return count;
    };
    std::uint64_t* now = blocks[0];
    std::uint64_t* next = blocks[1];
    Index count = hash(begin, now);
    for (Index j = 0; j < count; ++j) body.Prefetch(begin + j, now[j]);
    while (count > 0) {
      const Index after = begin + count;
      const Index more = hash(after, next);
      if (more == kBlock) {
        for (Index j = 0; j < kBlock; ++j) {
          body.Prefetch(after + j, next[j]);
          visit(begin + j, now[j]);
        }
      } else {
        for (Index j = 0; j < more; ++j) body.Prefetch(after + j, next[j]);
        for (Index j = 0; j < count; ++j) visit(begin + j, now[j]);
      }
      begin = after;
      count = more;
      std::swap(now, next);
    }
  }

  // Small work stays on this thread: waking another takes longer than doing it.
  template <class Index, class F>
  static void InParallel(Queue& queue, Index n, std::type_identity_t<Index> grain, F f) {
    if (n <= grain || queue.threads.count() == 1) {
      if (n > 0) f(Index{0}, n);
      return;
    }
    queue.threads.ForRanges(n, grain, f);
  }

  // The first of two passes counts the items that each chunk keeps, so every chunk knows where its own go.
  // The second pass also writes each item that is not kept, and overwrites it with the next one: a branch
  // that the processor cannot predict takes longer.
  template <class Keep, class Emit>
  static std::uint32_t Select(Queue& queue, std::uint32_t n, Keep keep, Emit emit) {
    const Chunks chunks(queue, n);
    if (chunks.count == 1) return SelectRange(0, n, 0, n, keep, emit);
    std::uint32_t* place = queue.places.Reserve(queue, chunks.count + std::size_t{1});
    ForEachChunk(queue, chunks, [=](std::uint32_t chunk, std::uint32_t begin, std::uint32_t end) {
      std::uint32_t kept = 0;
      for (std::uint32_t i = begin; i < end; ++i) kept += keep(i) ? 1 : 0;
      place[chunk] = kept;
    });
    std::uint32_t total = 0;
    for (std::uint32_t c = 0; c < chunks.count; ++c) total += std::exchange(place[c], total);
    place[chunks.count] = total;
    ForEachChunk(queue, chunks, [=](std::uint32_t chunk, std::uint32_t begin, std::uint32_t end) {
      SelectRange(begin, end, place[chunk], place[chunk + 1], keep, emit);
    });
    return total;
  }

  // Sends the kept items of [begin, end) to the places [at, limit). Returns the first free place, or limit.
  template <class Keep, class Emit>
  static std::uint32_t SelectRange(std::uint32_t begin, std::uint32_t end, std::uint32_t at,
                                   std::uint32_t limit, Keep keep, Emit emit) {
    for (std::uint32_t i = begin; i < end && at < limit; ++i) {
      emit(i, at);
      at += keep(i) ? 1 : 0;
    }
    return at;
  }
};

static_assert(Backend<CpuBackend>);

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_BACKEND_CPU_H_
