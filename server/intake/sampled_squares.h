// SampledSquares: sums the squares of a sample of an array's numbers, to measure their size.
//
// The sample is one cache line of every 17: few rows are a multiple of 17 lines long, so that a long array's
// sample has all places of a row about equally often. The caller chooses the first line, a different one for
// each array of a sequence, so that all places of short arrays are sampled in turn. The sum is in binary64,
// in which no square of a finite float overflows, and has the same bits for the same numbers in whatever
// pieces they come.
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
  // One line of kDistance is sampled.
  static constexpr std::size_t kDistance = 17;

  // The first line of the sample is number first mod kDistance.
  explicit SampledSquares(std::uint64_t first) : ahead_(first % kDistance) {}

  // Adds the numbers of the sample among `count` numbers, which follow the numbers of the last call, are
  // finite, and need not be aligned. REQUIRES: every piece but the last is a whole number of lines.
  void Add(const void* numbers, DataType type, std::size_t count);

  // Returns the sum so far, which is finite.
  SquareSum sum() const;

 private:
  std::size_t ahead_;  // lines to skip before the next sampled one
  std::array<double, 8> squares_ = {};
  std::uint64_t numbers_ = 0;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_INTAKE_SAMPLED_SQUARES_H_
