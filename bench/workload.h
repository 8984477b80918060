// Makes a benchmark's keys: draws rows by a power law, and gives each row a key.
#ifndef SLOTWISE_BENCH_WORKLOAD_H_
#define SLOTWISE_BENCH_WORKLOAD_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "slotwise/types.h"

namespace slotwise::bench {

// Draws `n` numbers in [0, rows), P(r) ~ (r + 1)^-alpha; alpha 0 is uniform. The same arguments give the same
// numbers.
std::vector<std::uint32_t> DrawRows(std::size_t n, std::uint32_t rows, double alpha, std::uint64_t seed);

// Returns row r's key. Keys are spread over 64 bits, like hashed ids, but by another hash than the table's.
// Different rows have different keys.
Key KeyOf(std::uint64_t row);

std::vector<Key> KeysOf(std::span<const std::uint32_t> rows);

// Returns the keys of rows [first, first + n), in the order of the rows.
std::vector<Key> KeysOfRange(std::uint64_t first, std::size_t n);

// Returns the bags + 1 offsets of `bags` bags of `hot` keys each, beginning with `first`.
std::vector<std::uint32_t> EvenOffsets(std::size_t bags, std::uint32_t hot, std::uint32_t first = 0);

}  // namespace slotwise::bench

#endif  // SLOTWISE_BENCH_WORKLOAD_H_
