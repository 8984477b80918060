// IngestCopy copies arrays, adds up their hashes and finds what is wrong in them, in one pass over memory.
//
// A thread has kVectors vectors of 16 bytes. It loads each once, and all of them before it looks at one.
// Neighbouring threads load neighbouring vectors: a group is the 32 threads whose vectors lie together.
#ifndef SLOTWISE_KERNELS_BODY_INGEST_COPY_H_
#define SLOTWISE_KERNELS_BODY_INGEST_COPY_H_

#include <cstddef>
#include <cstdint>

#include "kernels/body/portable.h"
#include "kernels/ingest_copy.h"

namespace slotwise::body {

// Sixteen bytes.
struct alignas(16) Words {
  std::uint32_t at[4];
};

// Loads a vector once; all later work is done on the words that were loaded.
SLOTWISE_HD inline Words LoadOnce(const Words* from) {
#ifdef __CUDA_ARCH__
  Words words;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.at[0]), "=r"(words.at[1]), "=r"(words.at[2]), "=r"(words.at[3])
               : "l"(from));
  return words;
#else
  const volatile std::uint32_t* const at = from->at;
  return {{at[0], at[1], at[2], at[3]}};
#endif
}

// The arrays of a launch, in device memory. Sums are kept in several places for each array, so that groups
// seldom meet at one. Each place has a cache line of its own, because additions to a line come one after the
// other, a nanosecond each (docs/performance-log.md).
struct ArrivingArrays {
  static constexpr std::uint32_t kMost = 48;
  static constexpr std::uint32_t kSumsOfOne = 16;
  static constexpr std::uint32_t kSumStride = 128 / sizeof(std::uint64_t);
  static constexpr std::uint32_t kGroup = 32;
  static constexpr std::uint32_t kVectors = 8;
  static constexpr std::uint32_t kVectorsOfGroup = kGroup * kVectors;

  enum class Words32 : std::uint8_t { kAsTheyAre, kIndices, kWide, kFloat32, kFloat16, kBFloat16 };
  struct Array {
    const Words* from;
    Words* to;
    std::uint64_t size;  // 32-bit words, 16-bit numbers, or wide offsets
    std::uint64_t last;
    std::uint32_t first_thread;
    Words32 words;
    bool rises;
    bool one_key_a_bag;
  };

  Array arrays[kMost];
  std::uint32_t count;
  std::uint64_t* sums;   // [kMost][kSumsOfOne][kSumStride], zeros between launches
  std::uint64_t* wrong;  // [kMost], kNone where nothing is wrong

  // Returns where sum `sum` of array `array` is among `sums`.
  SLOTWISE_HD static std::size_t PlaceOf(std::uint32_t array, std::uint32_t sum) {
    return (std::size_t{array} * kSumsOfOne + sum) * kSumStride;
  }

  // Returns the array that a thread works on.
  SLOTWISE_HD std::uint32_t Of(std::uint32_t thread) const {
    std::uint32_t low = 0;
    std::uint32_t high = count;
    while (high - low > 1) {
      const std::uint32_t middle = (low + high) / 2;
      (arrays[middle].first_thread <= thread ? low : high) = middle;
    }
    return low;
  }
};

template <class Atomics>
SLOTWISE_HD void NoteWrong(std::uint64_t* wrong, std::uint64_t place) {
  std::uint64_t before = Atomics::Load(wrong);
  while (place < before) {
    const std::uint64_t found = Atomics::CompareExchange(wrong, before, place);
    if (found == before) return;
    before = found;
  }
}

// Returns the number that pair `pair` of an array adds to the array's hash.
SLOTWISE_HD inline std::uint64_t ProductOfPair(std::uint32_t low, std::uint32_t high, std::uint64_t pair) {
  const std::uint64_t words = (static_cast<std::uint64_t>(high) << 32 | low) + (pair + 1) * kPairPlace;
  return (words & 0xFFFF'FFFFU) * (words >> 32);
}

// Copies the vectors of one thread.
template <class Atomics>
struct CopyArrivals {
  ArrivingArrays all;

  SLOTWISE_HD void operator()(std::uint32_t thread) const {
    using Words32 = ArrivingArrays::Words32;
    constexpr std::uint32_t kVectors = ArrivingArrays::kVectors;
    const std::uint32_t a = all.Of(thread);
    const ArrivingArrays::Array& array = all.arrays[a];
    const std::uint32_t local = thread - array.first_thread;
    const std::uint32_t group = local / ArrivingArrays::kGroup;
    const std::uint64_t first =
        static_cast<std::uint64_t>(group) * ArrivingArrays::kVectorsOfGroup + local % ArrivingArrays::kGroup;
    const bool halves = array.words == Words32::kFloat16 || array.words == Words32::kBFloat16;
    const bool wide = array.words == Words32::kWide;
    const std::uint64_t in_vector = halves ? 8 : wide ? 2 : 4;
    const std::uint64_t vectors = (array.size + in_vector - 1) / in_vector;
    Words loaded[kVectors] = {};
    if (array.words != Words32::kIndices) {
      SLOTWISE_UNROLL
      for (std::uint32_t v = 0; v < kVectors; ++v) {
        const std::uint64_t at = first + std::uint64_t{v} * ArrivingArrays::kGroup;
        if (at < vectors) loaded[v] = LoadOnce(array.from + at);
      }
    }
    std::uint64_t sum = 0;
    std::uint64_t wrong = ArrivedArray::kNone;
    SLOTWISE_UNROLL
    for (std::uint32_t v = 0; v < kVectors; ++v) {
      const std::uint64_t at = first + std::uint64_t{v} * ArrivingArrays::kGroup;
      if (at >= vectors) continue;
      const std::uint64_t left = array.size - at * in_vector;
      if (wide) {
        sum += Narrow(array, loaded[v], at, left, wrong);
        continue;
      }
      sum += halves ? Halves(array, loaded[v], at, left, wrong) : Whole(array, loaded[v], at, left, wrong);
      array.to[at] = loaded[v];
      if (at + 1 == vectors) ClearPadding(array, vectors);
    }
    Add(a, group, sum, wrong);
  }

 private:
  // Returns the number that a vector of 32-bit words adds to the hash; words beyond the array's end become 0.
  SLOTWISE_HD static std::uint64_t Whole(const ArrivingArrays::Array& array, Words& words, std::uint64_t at,
                                         std::uint64_t left, std::uint64_t& wrong) {
    using Words32 = ArrivingArrays::Words32;
    SLOTWISE_UNROLL
    for (std::uint32_t w = 0; w < 4; ++w) {
      if (array.words == Words32::kIndices) words.at[w] = static_cast<std::uint32_t>(at * 4 + w);
      if (w >= left) words.at[w] = 0;
      if (array.words == Words32::kFloat32 && !IsFinite(words.at[w]) && at * 4 + w < wrong)
        wrong = at * 4 + w;
    }
    return ProductOfPair(words.at[0], words.at[1], at * 2) +
           (left > 2 ? ProductOfPair(words.at[2], words.at[3], at * 2 + 1) : 0);
  }

  // Writes two wide offsets as words of 32 bits, and returns the number that they add to the hash.
  SLOTWISE_HD static std::uint64_t Narrow(const ArrivingArrays::Array& array, const Words& words,
                                          std::uint64_t at, std::uint64_t left, std::uint64_t& wrong) {
    constexpr std::uint64_t kInPadded = ArrivingArray::kAlign / sizeof(std::uint32_t);
    auto* const to = reinterpret_cast<std::uint32_t*>(array.to) + at * 2;
    const std::uint32_t first = words.at[1] == 0 ? words.at[0] : ~0U;
    const std::uint32_t second = left < 2 ? 0 : words.at[3] == 0 ? words.at[2] : ~0U;
    if (left >= 2 && words.at[3] != 0 && at * 2 + 1 < wrong) wrong = at * 2 + 1;
    if (words.at[1] != 0 && at * 2 < wrong) wrong = at * 2;
    to[0] = first;
    to[1] = second;
    for (std::uint64_t w = 2; left <= 2 && (at * 2 + w) % kInPadded != 0; ++w) to[w] = 0;
    return ProductOfPair(first, second, at);
  }

  // Does the same for 16-bit numbers, each of which is hashed as its float32.
  SLOTWISE_HD static std::uint64_t Halves(const ArrivingArrays::Array& array, Words& words, std::uint64_t at,
                                          std::uint64_t left, std::uint64_t& wrong) {
    std::uint64_t sum = 0;
    SLOTWISE_UNROLL
    for (std::uint32_t w = 0; w < 4; ++w) {
      const std::uint64_t number = std::uint64_t{2} * w;  // the word's first, among the vector's numbers
      if (number >= left) words.at[w] = 0;
      if (number + 1 >= left) words.at[w] &= 0xFFFFU;
      std::uint32_t wide[2];
      SLOTWISE_UNROLL
      for (std::uint32_t h = 0; h < 2; ++h) {
        const auto bits = static_cast<std::uint16_t>(words.at[w] >> 16 * h);
        wide[h] = Wide(array, bits);
        if (!IsFinite(wide[h]) && at * 8 + number + h < wrong) wrong = at * 8 + number + h;
      }
      if (number < left) sum += ProductOfPair(wide[0], wide[1], at * 4 + w);
    }
    return sum;
  }

  SLOTWISE_HD static std::uint32_t Wide(const ArrivingArrays::Array& array, std::uint16_t bits) {
    if (array.words == ArrivingArrays::Words32::kBFloat16) return static_cast<std::uint32_t>(bits) << 16;
    return BitsOf(FromFloat16(bits));
  }
  SLOTWISE_HD static std::uint32_t BitsOf(float value) {
#ifdef __CUDA_ARCH__
    return __float_as_uint(value);
#else
    return __builtin_bit_cast(std::uint32_t, value);
#endif
  }
  SLOTWISE_HD static bool IsFinite(std::uint32_t float_bits) {
    return (float_bits & 0x7F80'0000U) != 0x7F80'0000U;
  }

  SLOTWISE_HD static void ClearPadding(const ArrivingArrays::Array& array, std::uint64_t vectors) {
    constexpr std::uint64_t kInPadded = ArrivingArray::kAlign / sizeof(Words);
    for (std::uint64_t v = vectors; v % kInPadded != 0; ++v) array.to[v] = Words{};
  }

  SLOTWISE_HD void Add(std::uint32_t a, std::uint32_t group, std::uint64_t sum, std::uint64_t wrong) const {
    std::uint64_t* const place = all.sums + ArrivingArrays::PlaceOf(a, group % ArrivingArrays::kSumsOfOne);
    if (wrong != ArrivedArray::kNone) NoteWrong<Atomics>(all.wrong + a, wrong);
#ifdef __CUDA_ARCH__
    // A group is a warp, because launches begin at multiples of its size: one thread adds for all.
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0U, sum, step);
    if (threadIdx.x % 32 != 0) return;
#endif
    Atomics::Add(place, sum);
  }
};

// Checks offset i of one array that was copied.
template <class Atomics>
struct CheckOffsets {
  const std::uint32_t* offsets;
  std::uint64_t size;
  std::uint64_t last;
  bool one_key_a_bag;
  std::uint64_t* wrong;

  SLOTWISE_HD void operator()(std::uint64_t i) const {
    const std::uint32_t offset = offsets[i];
    const bool ends = i + 1 == size;
    const bool right = (i > 0 || offset == 0) && (ends ? offset == last : offset <= offsets[i + 1]) &&
                       (!one_key_a_bag || offset == i);
    if (!right) NoteWrong<Atomics>(wrong, i);
  }
};

// Reports what was found in array i, and clears its places for the next launch.
struct ReportArrivals {
  std::uint64_t* sums;
  std::uint64_t* wrong;
  ArrivedArray* found;  // in memory that the host reads

  SLOTWISE_HD void operator()(std::uint32_t i) const {
    std::uint64_t sum = 0;
    for (std::uint32_t s = 0; s < ArrivingArrays::kSumsOfOne; ++s) {
      std::uint64_t& one = sums[ArrivingArrays::PlaceOf(i, s)];
      sum += one;
      one = 0;
    }
    found[i].pairs = sum;
    found[i].wrong = wrong[i];
    wrong[i] = ArrivedArray::kNone;
  }
};

// Clears the places of an array for the first launch.
struct ClearArrivals {
  std::uint64_t* sums;
  std::uint64_t* wrong;
  SLOTWISE_HD void operator()(std::uint32_t i) const {
    for (std::uint32_t s = 0; s < ArrivingArrays::kSumsOfOne; ++s) sums[ArrivingArrays::PlaceOf(i, s)] = 0;
    wrong[i] = ArrivedArray::kNone;
  }
};

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_INGEST_COPY_H_
