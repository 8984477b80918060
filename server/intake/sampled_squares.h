// SampledSquares: the sum of the squares of a sample of an array's numbers, which says how large they are.
//
// The sample is one cache line of every 17: few rows are a multiple of 17 lines long, so that a long array's
// sample has all places of a row about equally often. Which line comes first is up to the caller, who gives
// each array of a sequence another one, so that all places of short arrays come in turn. The sum is in
// binary64, in which no square of a finite float overflows, and it has the same bits for the same numbers
// however they are cut.
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_SERVER_INTAKE_SAMPLED_SQUARES_H_
#define SLOTWISE_SERVER_INTAKE_SAMPLED_SQUARES_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "server/counters/table_counters.h"
#include "slotwise/data_type.h"

namespace slotwise {

class SampledSquares {
 public:
  static constexpr std::size_t kLine = 64;  // bytes
  // One line of so many is sampled.
  static constexpr std::size_t kDistance = 17;

  // The first line of the sample is number `first`, of which the remainder by kDistance counts.
  explicit SampledSquares(std::uint64_t first) : ahead_(first % kDistance) {}

  // Adds those of `count` numbers that are of the sample. The numbers follow those that were added before,
  // are finite, and need not be aligned. REQUIRES: every piece but the last is a whole number of lines.
  void Add(const void* numbers, DataType type, std::size_t count);

  // Returns the sum so far, which is finite.
  SquareSum sum() const;

 private:
  std::size_t ahead_;  // lines before the next one of the sample
  std::array<double, 8> squares_ = {};
  std::uint64_t numbers_ = 0;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_INTAKE_SAMPLED_SQUARES_H_
