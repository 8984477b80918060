// A backend supplies memory, a queue of launches, and the few algorithms that machines do differently.
//
// A backend is a class that is only a namespace of types and static functions. A queue orders launches: a
// launch sees what the launches before it on the same queue wrote. A Queue is a backend's own type, with the
// memory that its algorithms work in; a Stream (stream.h) is the same order of work as the rest of Slotwise
// sees it, and owns or shares a queue. Only functions that return a value to the host wait for the queue, and
// their comments say so. Counts are elements, never bytes, unless a comment says so.
// Thread-safety: a queue and the arrays used with it belong to one thread at a time.
#ifndef SLOTWISE_KERNELS_BACKEND_CONCEPT_H_
#define SLOTWISE_KERNELS_BACKEND_CONCEPT_H_

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/body/portable.h"
#include "kernels/shard.h"

namespace slotwise {

// Two buffers of (key, value) pairs for a sort, which leaves its result in `current`.
struct PairBuffers {
  std::uint32_t* keys[2];
  std::uint32_t* values[2];
  int current = 0;
};

// The concept is checked with these in place of the functors of kernels/body.
namespace backend_probe {
struct Each {
  SLOTWISE_HD void operator()(std::uint64_t) const {}
};
struct Numbered {
  static constexpr bool kNumbersMost = false;
  SLOTWISE_HD bool operator()(std::uint32_t) const { return true; }
  SLOTWISE_HD void Number(std::uint32_t, bool, std::uint32_t) const {}
};
struct EachTile {
  template <class Tile>
  SLOTWISE_HD void operator()(Tile, std::uint32_t) const {}
};
struct EachRun {
  template <class Tile>
  SLOTWISE_HD void operator()(Tile, std::uint32_t, std::uint32_t) const {}
};
struct Keep {
  SLOTWISE_HD bool operator()(std::uint32_t) const { return true; }
};
struct KeepKey {
  SLOTWISE_HD bool operator()(Key) const { return true; }
};
struct Ask {
  SLOTWISE_HD std::uint32_t operator()() const { return 0; }
};
struct Ask32 {
  SLOTWISE_HD std::uint32_t operator()(std::uint32_t) const { return 0; }
};
struct Measure {
  SLOTWISE_HD DigestSums operator()(std::uint64_t) const { return {}; }
};
}  // namespace backend_probe

template <class B>
concept Backend = requires(
    typename B::Queue& queue, typename B::Stream& stream, typename B::template Scratch<float>& scratch,
    typename B::template Growing<float>& growing, typename B::HostCopy& host_copy,
    typename B::TableBytes& table_bytes, typename B::template Answer<std::uint32_t>& answer,
    PairBuffers& pairs, const Key* keys, Key* kept, std::uint32_t* indices, const std::uint32_t* counts,
    std::uint64_t* word, std::size_t n, std::uint32_t n32) {
  // Stream implements the one of stream.h; queue() returns the queue that it stands for.
  requires std::derived_from<typename B::Stream, Stream>;
  { stream.queue() } -> std::same_as<typename B::Queue&>;

  // kSharesHostMemory says whether launches can read and write any memory of the host's.
  { std::bool_constant<B::kSharesHostMemory>{} };
  // A batch moves or frees at least so many cells of a hash table that grows (growing_table.inl): a few
  // milliseconds' work.
  { std::integral_constant<std::uint64_t, B::kCellsMovedABatch>{} };
  { std::integral_constant<std::uint64_t, B::kCellsFreedABatch>{} };
  // Orders all later work of the first queue after all work asked of the second so far.
  B::OrderAfter(queue, queue);

  // Scratch<T> is an array whose contents need not survive. Reserve(queue, n) makes the array at least n long
  // and returns it.
  { scratch.Reserve(queue, n) } -> std::same_as<float*>;

  // Growing<T>(queue, limit) is an array that keeps its contents as it grows, up to `limit` elements. Grow(n)
  // makes the array at least n long, with new elements uninitialised; Grow throws std::bad_alloc, and the
  // array is as it was then. Ahead(n) returns how long the array should be when n elements are needed now,
  // and more later.
  { growing.Grow(n) };
  { growing.Ahead(n) } -> std::same_as<std::size_t>;
  // Extend(queue, limit) raises the limit; the contents stay, but data() may change. REQUIRES: only `queue`
  // has work on the array. Extend throws std::bad_alloc, and nothing has changed then. Waits.
  { growing.Extend(queue, n) };
  { growing.data() } -> std::same_as<float*>;
  { growing.size() } -> std::same_as<std::size_t>;

  // Returns how many bytes of memory tables may still take. The rest is for batches, which would otherwise
  // fail midway for want of memory.
  { B::MemoryForTables(queue) } -> std::same_as<std::size_t>;
  // Returns the bytes of such memory that lists of keys and rows take beside each row.
  { B::KeptBesideARow() } -> std::same_as<std::size_t>;
  // TableBytes counts such memory outside of Growing arrays: Set(bytes) says how much there is of it now.
  table_bytes.Set(n);

  // Calls f(i) for every i in [0, n), in any order, in parallel.
  B::ForEach(queue, n, backend_probe::Each{});
  // Calls f(i) for every i in [0, *counts). REQUIRES: *counts <= n.
  B::ForEachUpTo(queue, n32, counts, backend_probe::Each{});
  // Calls f(i) for every i in [0, n), and where the outcome is true calls f.Number(i, outcome, number) with a
  // number of its own; numbers count up from 0, in no order. f.kNumbersMost says whether most outcomes will
  // be true. Waits, and returns how many outcomes were true.
  { B::ForEachNumbered(queue, n32, backend_probe::Numbered{}) } -> std::same_as<std::uint32_t>;
  // Does the same for every i in [0, *counts), or in [0, n) if `counts` is null, and does not wait: the
  // number of true outcomes comes to `answer`. REQUIRES: *counts <= n.
  B::ForEachNumbered(queue, n32, counts, backend_probe::Numbered{}, answer);
  // Calls f(tile, i) for every i, with tiles that suit rows of `dim` elements.
  B::ForEachTile(queue, n32, n32, backend_probe::EachTile{});
  // The length of the rows into which arrays of numbers are cut for ForEachTile. Divisible by 4.
  { std::integral_constant<std::uint32_t, B::kRowOfNumbers>{} };
  // Calls f(tile, begin, end) for short runs that together are [0, n). On the CPU runs are single indices. A
  // body that holds more than one row in registers says how many: kRowsHeld.
  B::ForEachRun(queue, n32, n32, backend_probe::EachRun{});

  // Writes out[i] = in[0] + ... + in[i - 1] for i in [0, n]. `out` may be `in`. REQUIRES: both have room for
  // n + 1.
  B::ExclusiveScan(queue, counts, n32, indices);
  // Copies the keys of [0, n) that `keep` accepts, in order; *count becomes their number. REQUIRES, here and
  // below: room for n.
  B::SelectKeys(queue, keys, n32, kept, indices, backend_probe::KeepKey{});
  // Writes the indices in [0, n) that `keep` accepts likewise.
  B::SelectIndices(queue, n32, indices, indices, backend_probe::Keep{});
  // Sorts n pairs by the low `bits` bits of their keys, stably. Throws std::bad_alloc.
  B::SortPairs(queue, pairs, n32, n32);
  // Writes to the host's counts[b], for b in [0, 4096 or fewer bins), for how many i in [0, n) f(i) is b. Any
  // other f(i) counts nowhere. Waits.
  B::template Histogram<64>(queue, n32, backend_probe::Ask32{}, word);
  // Returns Σ f(i) over [0, n). Waits.
  { B::Sum(queue, n, backend_probe::Measure{}) } -> std::same_as<DigestSums>;

  // Returns f(), of at most 64 bytes, which one thread of the device computes. Waits.
  { B::Ask(queue, backend_probe::Ask{}) } -> std::same_as<std::uint32_t>;
  // Returns one value of device memory. Waits.
  { B::Get(queue, counts) } -> std::same_as<std::uint32_t>;
  // An Answer<T> is a value of at most 64 bytes that comes to the host later. Ask and Get with an answer
  // begin to bring the value, and do not wait. answer.Get(queue) returns it, and waits for the queue unless a
  // call has waited for the queue since, so that several answers take one wait.
  B::Ask(queue, backend_probe::Ask{}, answer);
  B::Get(queue, counts, answer);
  { answer.Get(queue) } -> std::same_as<std::uint32_t>;
  // A HostCopy brings values to the host. Start(queue, from, n) begins to bring n of them, Wait() waits for
  // those and returns them, and IsDone() says whether Wait would return at once. REQUIRES, of both: Start.
  host_copy.Start(queue, counts, n);
  { host_copy.IsDone() } -> std::same_as<bool>;
  { host_copy.Wait() } -> std::same_as<std::span<const std::uint32_t>>;
  // CopyIn and CopyOut copy n values from and to host memory, and return when they have arrived.
  B::CopyIn(queue, kept, keys, n);
  B::CopyOut(queue, kept, keys, n);

  // Launches may use Atomics. Load and Store are relaxed, of words of 64 or 32 bits;
  // CompareExchange returns the value before.
  B::Atomics::Add(word, std::uint64_t{});
  { B::Atomics::Load(word) } -> std::same_as<std::uint64_t>;
  B::Atomics::Store(word, std::uint64_t{});
  { B::Atomics::Load(indices) } -> std::same_as<std::uint32_t>;
  B::Atomics::Store(indices, std::uint32_t{});
  { B::Atomics::CompareExchange(word, std::uint64_t{}, std::uint64_t{}) } -> std::same_as<std::uint64_t>;
};

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_BACKEND_CONCEPT_H_
