// These bodies count the occurrences of keys without a row in a Bloom counter: a counting filter in blocks
// (docs/semantics.md, "The Bloom counter").
//
// A block is a row of the candidates' table: 15 whole numbers below 2^24, which floats hold exactly, of three
// counters of 8 bits each, and a tally. A key has one block, of the key's own bucket, so the rank that owns
// the key owns the block too. A push admits by the counters as they are; then it raises the counters, in any
// order and by any number of threads at once, to numbers that were decided before.
#ifndef SLOTWISE_KERNELS_BODY_BLOOM_COUNTER_H_
#define SLOTWISE_KERNELS_BODY_BLOOM_COUNTER_H_

#include <cstdint>
#include <cstring>

#include "kernels/body/admission.h"
#include "kernels/body/hash.h"
#include "kernels/body/hash_table.h"
#include "kernels/body/portable.h"
#include "kernels/body/rows.h"
#include "kernels/body/update.h"
#include "slotwise/table_options.h"
#include "slotwise/types.h"

namespace slotwise::body {

inline constexpr std::uint32_t kBitsOfCounter = 8;
inline constexpr std::uint32_t kMostOfCounter = (1U << kBitsOfCounter) - 1;
inline constexpr std::uint32_t kCountersOfWord = 3;
inline constexpr std::uint32_t kTallyWord = BloomCounter::kFloats - 1;
inline constexpr std::uint32_t kCountersOfBlock = kCountersOfWord * kTallyWord;
inline constexpr std::uint32_t kCountersOfKey = 3;
inline constexpr std::uint32_t kMostOfTally = (1U << 24) - 1;

// Returns the key of the row that is the block of `key`, where each bucket has `blocks` blocks.
SLOTWISE_HD constexpr Key BlockOf(Key key, std::uint32_t blocks) {
  const std::uint64_t mixed = Mix64(Value(key));
  const std::uint64_t index = (mixed >> 20 & 0xFFFF'FFFF) * blocks >> 32;
  return Key{InverseOfMix64(mixed >> 52 << 52 | index)};
}

// A Raise says which counters of its block a key has, and to what a push raises them. It is 32 bits, so that
// a list of raises is one of words.
struct Raise {
  static constexpr std::uint32_t kBitsOfPlace = 6;
  static_assert(kCountersOfBlock <= 1U << kBitsOfPlace);

  std::uint32_t bits;

  // Returns the raise of a key to `to`, at most kMostOfCounter. The key's counters are different ones.
  SLOTWISE_HD static constexpr Raise Of(Key key, std::uint32_t to) {
    const std::uint64_t mixed = TieOf(Value(key));
    std::uint32_t bits = to;
    std::uint32_t taken[kCountersOfKey] = {};  // in ascending order
    for (std::uint32_t c = 0; c < kCountersOfKey; ++c) {
      // The drawn number is a place among the counters that are left.
      const auto drawn = static_cast<std::uint32_t>(mixed >> (16 * c) & 0xFFFF);
      std::uint32_t place = drawn * (kCountersOfBlock - c) >> 16;
      std::uint32_t at = 0;
      while (at < c && taken[at] <= place) {
        ++place;
        ++at;
      }
      for (std::uint32_t later = c; later > at; --later) taken[later] = taken[later - 1];
      taken[at] = place;
      bits |= place << (kBitsOfCounter + kBitsOfPlace * c);
    }
    return {bits};
  }
  // Returns the place of one of the key's counters in its block.
  SLOTWISE_HD constexpr std::uint32_t Place(std::uint32_t c) const {
    return bits >> (kBitsOfCounter + kBitsOfPlace * c) & ((1U << kBitsOfPlace) - 1);
  }
  SLOTWISE_HD constexpr std::uint32_t to() const { return bits & kMostOfCounter; }
};

// The words of blocks, of which any number of threads raise counters. Two words are read and written as one
// of 64 bits, because that is what Atomics exchange: the even one is its lower half.
template <class Atomics>
struct CounterBlocks {
  static constexpr std::uint32_t kPairs = BloomCounter::kFloats / 2;

  RowsOf<float> rows;

  SLOTWISE_HD std::uint64_t* Pairs(RowIndex row) const {
    return reinterpret_cast<std::uint64_t*>(rows.Record(row));
  }
  // Returns one of the two words of a pair.
  SLOTWISE_HD static std::uint32_t WordIn(std::uint64_t pair, std::uint32_t word) {
    const auto bits = static_cast<std::uint32_t>(pair >> (word % 2 * 32));
    float value = 0;
    memcpy(&value, &bits, sizeof(value));
    return static_cast<std::uint32_t>(value);
  }
  // Returns the pair with another word in the place of one of its two. REQUIRES: number < 2^24.
  SLOTWISE_HD static std::uint64_t WithWord(std::uint64_t pair, std::uint32_t word, std::uint32_t number) {
    const auto value = static_cast<float>(number);
    std::uint32_t bits = 0;
    memcpy(&bits, &value, sizeof(bits));
    const std::uint32_t shift = word % 2 * 32;
    return (pair & ~(std::uint64_t{0xFFFF'FFFF} << shift)) | std::uint64_t{bits} << shift;
  }

  // Returns the least of a key's counters.
  SLOTWISE_HD std::uint32_t Estimate(RowIndex row, Raise raise) const {
    std::uint32_t least = kMostOfCounter;
    for (std::uint32_t c = 0; c < kCountersOfKey; ++c) {
      const std::uint32_t word = raise.Place(c) / kCountersOfWord;
      const std::uint32_t counters = WordIn(Atomics::Load(Pairs(row) + word / 2), word);
      const std::uint32_t count =
          counters >> (raise.Place(c) % kCountersOfWord * kBitsOfCounter) & kMostOfCounter;
      if (count < least) least = count;
    }
    return least;
  }
  // Raises the counter at `place` to `to`, unless it is as high.
  SLOTWISE_HD void RaiseTo(RowIndex row, std::uint32_t place, std::uint32_t to) const {
    const std::uint32_t word = place / kCountersOfWord;
    const std::uint32_t shift = place % kCountersOfWord * kBitsOfCounter;
    std::uint64_t* const pair = Pairs(row) + word / 2;
    std::uint64_t before = Atomics::Load(pair);
    for (;;) {
      const std::uint32_t counters = WordIn(before, word);
      if ((counters >> shift & kMostOfCounter) >= to) return;
      const std::uint32_t raised = (counters & ~(kMostOfCounter << shift)) | to << shift;
      const std::uint64_t now = Atomics::CompareExchange(pair, before, WithWord(before, word, raised));
      if (now == before) return;
      before = now;
    }
  }
  // Adds occurrences to the tally, and halves the counters and the tally if the tally is `window` or more.
  // The tally is rounded up, so that all counters together never exceed kCountersOfKey times the tally.
  // REQUIRES: one thread works on the block.
  SLOTWISE_HD void Tally(RowIndex row, std::uint32_t occurrences, std::uint32_t window) const {
    constexpr std::uint32_t kHalves = 0x7F'7F7F;
    std::uint64_t* const pairs = Pairs(row);
    std::uint64_t* const last = pairs + (kPairs - 1);
    const std::uint64_t before = Atomics::Load(last);
    std::uint32_t tally = WordIn(before, kTallyWord);
    tally = occurrences < kMostOfTally - tally ? tally + occurrences : kMostOfTally;
    if (tally < window) {
      Atomics::Store(last, WithWord(before, kTallyWord, tally));
      return;
    }
    for (std::uint32_t word = 0; word < kTallyWord; ++word) {
      const std::uint64_t pair = Atomics::Load(pairs + word / 2);
      Atomics::Store(pairs + word / 2, WithWord(pair, word, WordIn(pair, word) >> 1 & kHalves));
    }
    Atomics::Store(last, WithWord(Atomics::Load(last), kTallyWord, (tally + 1) / 2));
  }
};

// Writes the keys' blocks in the place of the keys.
struct NameBlocks {
  std::uint32_t blocks;  // of a bucket
  Key* keys;             // [n]

  SLOTWISE_HD void operator()(std::uint32_t i) const { keys[i] = BlockOf(keys[i], blocks); }
};

// Lists the admitted ones of the absent keys, in no order, as AdmitByFrequency does, and writes what the push
// raises the counters of each absent key to.
template <class Atomics>
struct AdmitByBloom {
  static constexpr bool kNumbersMost = false;
  HashTableRef scratch;
  AbsentKeys of;
  const std::uint64_t* cells;  // of CountOccurrences
  const Key* blocks;           // [n]
  HashTableRef counter;        // the candidates' table
  CounterBlocks<Atomics> rows;
  std::uint32_t threshold;
  std::uint32_t* raises;  // [n]

  SLOTWISE_HD const HashTableRef& searched() const { return counter; }
  SLOTWISE_HD Key KeyOf(std::uint32_t i) const { return blocks[i]; }
  SLOTWISE_HD bool operator()(std::uint32_t i) const { return (*this)(i, counter.HashOf(KeyOf(i))); }
  SLOTWISE_HD bool operator()(std::uint32_t i, std::uint64_t hash) const {
    const Raise places = Raise::Of(of[i], 0);
    const RowIndex row = counter.Find(KeyOf(i), hash);
    const std::uint64_t count =
        scratch.cells[cells[i]].row + (row == kNoRow ? 0 : rows.Estimate(row, places));
    raises[i] = places.bits | static_cast<std::uint32_t>(count < kMostOfCounter ? count : kMostOfCounter);
    return count >= threshold;
  }
  SLOTWISE_HD void Number(std::uint32_t i, bool /*is_admitted*/, std::uint32_t number) const {
    of.Admit(i, number);
  }

  static constexpr std::uint32_t kAhead = kProbesAhead;
  void Prefetch(std::uint32_t /*i*/, std::uint64_t hash) const { counter.Prefetch(hash); }
};

// Raises the counters of an occurrence's key. An item is the key's place among the batch's keys.
template <class Atomics>
struct RaiseCounters {
  Segments segments;
  const std::uint32_t* raises;  // by item
  CounterBlocks<Atomics> blocks;

  SLOTWISE_HD void operator()(std::uint32_t i) const {
    const Raise raise{raises[segments.items[i]]};
    for (std::uint32_t c = 0; c < kCountersOfKey; ++c)
      blocks.RaiseTo(RowIndex{segments.rows[i]}, raise.Place(c), raise.to());
  }
};

// Adds the occurrences of a segment to the tally of its block.
template <class Atomics>
struct TallyBlocks {
  Segments segments;
  CounterBlocks<Atomics> blocks;
  std::uint32_t window;

  SLOTWISE_HD void operator()(std::uint32_t segment) const {
    blocks.Tally(segments.Row(segment), segments.Length(segment), window);
  }
};

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_BLOOM_COUNTER_H_
