// EvictionPlace: a row's place in the order in which a table's rows are evicted, and EvictionOrder: how a
// row's score becomes its place.
// Thread-safety: plain values.
#ifndef SLOTWISE_KERNELS_EVICTION_PLACE_H_
#define SLOTWISE_KERNELS_EVICTION_PLACE_H_

#include <cstdint>

#include "kernels/body/portable.h"
#include "slotwise/table_options.h"

namespace slotwise {

// A score that counts occurrences: `count` of them, in pushes up to `step`, the last that touched the row.
// count · 2^36 + step is the score's 64 bits. Both stop at their most.
struct OccurrenceScore {
  static constexpr std::uint32_t kStepBits = 36;
  static constexpr std::uint32_t kCountBits = 27;
  static constexpr std::uint64_t kMostSteps =
      EvictionOptions::kMaxHalfLife;  // so scores are below kScoreBound
  static constexpr std::uint64_t kMostCount = (std::uint64_t{1} << kCountBits) - 1;

  std::uint64_t count = 0;
  std::uint64_t step = 0;

  SLOTWISE_HD static constexpr OccurrenceScore Of(std::uint64_t score) {
    return {score >> kStepBits, score & ((std::uint64_t{1} << kStepBits) - 1)};
  }
  SLOTWISE_HD constexpr std::uint64_t bits() const {
    return (count < kMostCount ? count : kMostCount) << kStepBits | (step < kMostSteps ? step : kMostSteps);
  }
};

// EvictionOrder says how a table's rows are ordered at its step `now`.
struct EvictionOrder {
  ScoreKind score = ScoreKind::kNone;
  std::uint64_t half_life = 0;  // steps; 0: counts are never halved
  std::uint64_t now = 0;
  bool by_step = false;  // whatever the scores are, rows go by the step in which they were touched last

  static constexpr EvictionOrder Of(const TableOptions& options, std::uint64_t now) {
    return {options.score(), options.eviction.half_life_steps, now, IsOfCandidates(options.name.view())};
  }
  constexpr EvictionOrder ByStep() const { return {score, half_life, now, true}; }

  // Returns the score of a row that is new at `now`. No push has touched it.
  SLOTWISE_HD constexpr std::uint64_t OfNew() const {
    return CountsOccurrences(score) ? OccurrenceScore{0, now}.bits() : now;
  }
  // Returns the score of a row that the push of step `now` touches, whose key occurs so often in the push.
  SLOTWISE_HD constexpr std::uint64_t Touched(std::uint64_t before, std::uint64_t occurrences) const {
    if (!CountsOccurrences(score)) return now;
    const OccurrenceScore row = OccurrenceScore::Of(before);
    return OccurrenceScore{Halved(row) + occurrences, now}.bits();
  }
  // Returns the number by which a row with this score is ordered now. A row that no push has touched counts
  // as one with one occurrence.
  SLOTWISE_HD constexpr std::uint64_t NumberOf(std::uint64_t of_row) const {
    if (!CountsOccurrences(score)) return of_row;
    const OccurrenceScore row = OccurrenceScore::Of(of_row);
    if (by_step) return row.step;
    return OccurrenceScore{CountOf(of_row), score == ScoreKind::kStepLfu ? row.step : 0}.bits();
  }
  // Returns the count of a row with this score at `now`. REQUIRES: scores count occurrences.
  SLOTWISE_HD constexpr std::uint64_t CountOf(std::uint64_t of_row) const {
    OccurrenceScore row = OccurrenceScore::Of(of_row);
    if (row.count == 0) row.count = 1;
    return Halved(row);
  }
  // Returns the age of a row with this score: how many steps the table, whose next one is `now`, has taken
  // since the step that touched the row last. A row that no push has touched since it was made has the step
  // that was next then. An imported row may be of a later step; its age is 0.
  SLOTWISE_HD constexpr std::uint64_t AgeOf(std::uint64_t of_row) const {
    const std::uint64_t step = CountsOccurrences(score) ? OccurrenceScore::Of(of_row).step : of_row;
    return step < now ? now - 1 - step : 0;
  }

 private:
  // Returns the count at `now`.
  SLOTWISE_HD constexpr std::uint64_t Halved(const OccurrenceScore& row) const {
    if (half_life == 0 || row.step >= now) return row.count;
    const std::uint64_t times = now / half_life - row.step / half_life;
    return times < OccurrenceScore::kCountBits ? row.count >> times : 0;
  }
};

// Rows go by ascending score, and rows of equal score by ascending tie: TieOf the key (docs/semantics.md).
struct EvictionPlace {
  std::uint64_t score = 0;  // EvictionOrder::NumberOf; below kScoreBound
  std::uint64_t tie = 0;

  friend bool operator==(const EvictionPlace&, const EvictionPlace&) = default;
  SLOTWISE_HD friend constexpr bool operator<(const EvictionPlace& one, const EvictionPlace& other) {
    return one.score != other.score ? one.score < other.score : one.tie < other.tie;
  }
};

// Returns the number of bits of a word but for leading zeros.
SLOTWISE_HD constexpr std::uint32_t BitLength(std::uint64_t word) {
  std::uint32_t length = 0;
  for (std::uint32_t half = 32; half > 0; half /= 2) {
    if (word >> half == 0) continue;
    word >>= half;
    length += half;
  }
  return length + static_cast<std::uint32_t>(word);
}

// The rows of a shard that an eviction removes: how many, and the sum of Mix64 of their keys, modulo 2^64.
struct EvictedSums {
  std::uint64_t rows = 0;
  std::uint64_t checksum = 0;

  friend bool operator==(const EvictedSums&, const EvictedSums&) = default;
};

// The upper `bits` bits of a place's 128 bits. The other bits of `place` are 0. The first digit says how many
// bits a place has but for leading zeros, because steps and counts are far below what their bits can hold.
struct PlacePrefix {
  static constexpr std::uint32_t kBitsOfDigit = 11;
  static constexpr std::uint32_t kDigits = 1U << kBitsOfDigit;
  static constexpr std::uint32_t kBits = 128;

  EvictionPlace place;
  std::uint32_t bits = 0;

  // Returns whether a place begins with this prefix.
  SLOTWISE_HD constexpr bool Begins(const EvictionPlace& other) const {
    return Shifted(other, kBits - bits).score == Shifted(place, kBits - bits).score &&
           Shifted(other, kBits - bits).tie == Shifted(place, kBits - bits).tie;
  }
  // Returns the digit of `other` that follows the prefix. REQUIRES: bits < kBits.
  SLOTWISE_HD constexpr std::uint32_t DigitOf(const EvictionPlace& other) const {
    if (bits == 0) return other.score > 0 ? 64 + BitLength(other.score) : BitLength(other.tie);
    return static_cast<std::uint32_t>(Shifted(other, kBits - bits - NextBits()).tie) &
           ((1U << NextBits()) - 1);
  }
  // Returns the prefix that is longer by one digit.
  constexpr PlacePrefix With(std::uint32_t digit) const {
    if (bits == 0)
      return digit == 0 ? PlacePrefix{{}, kBits} : PlacePrefix{OneBit(digit - 1), kBits + 1 - digit};
    const std::uint32_t left = kBits - bits - NextBits();
    PlacePrefix longer{place, bits + NextBits()};
    if (left >= 64) {
      longer.place.score |= std::uint64_t{digit} << (left - 64);
    } else {
      longer.place.tie |= std::uint64_t{digit} << left;
      if (left > 64 - kBitsOfDigit) longer.place.score |= std::uint64_t{digit} >> (64 - left);
    }
    return longer;
  }
  // Returns the last place that begins with the prefix.
  constexpr EvictionPlace Last() const {
    const std::uint32_t left = kBits - bits;
    if (left >= 64) return {place.score | Ones(left - 64), Ones(64)};
    return {place.score, place.tie | Ones(left)};
  }

 private:
  // Returns the number of bits of the digit that follows, unless it is the first.
  SLOTWISE_HD constexpr std::uint32_t NextBits() const {
    return kBits - bits < kBitsOfDigit ? kBits - bits : kBitsOfDigit;
  }
  // Returns the place that has only this bit, from the lowest one on.
  static constexpr EvictionPlace OneBit(std::uint32_t bit) {
    return bit >= 64 ? EvictionPlace{std::uint64_t{1} << (bit - 64), 0}
                     : EvictionPlace{0, std::uint64_t{1} << bit};
  }
  static constexpr std::uint64_t Ones(std::uint32_t count) {
    return count == 0 ? 0 : ~std::uint64_t{0} >> (64 - count);
  }
  // Returns a place's 128 bits, shifted to the right.
  SLOTWISE_HD static constexpr EvictionPlace Shifted(const EvictionPlace& from, std::uint32_t by) {
    if (by == 0) return from;
    if (by >= 64) return {0, by == 128 ? 0 : from.score >> (by - 64)};
    return {from.score >> by, from.tie >> by | from.score << (64 - by)};
  }
};

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_EVICTION_PLACE_H_
