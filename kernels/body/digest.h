// Two 64-bit hashes of a row's record under its key. The hashes' sums over all rows are the table's digest.
//
// A hash is a chain through Mix64, a bijection: a change of any one word of a record changes the record's
// hash. The hashes are not cryptographic.
#ifndef SLOTWISE_KERNELS_BODY_DIGEST_H_
#define SLOTWISE_KERNELS_BODY_DIGEST_H_

#include <cstdint>
#include <cstring>

#include "kernels/body/hash.h"
#include "kernels/body/hash_table.h"
#include "kernels/body/rows.h"
#include "kernels/shard.h"

namespace slotwise::body {

// Hashes the row of a cell; a cell without a live key counts as zeros.
struct HashCell {
  SomeCells cells;
  RowsRef rows;

  SLOTWISE_HD DigestSums operator()(std::uint64_t cell) const {
    if (!cells.Live(cell)) return {0, 0};
    const std::uint64_t key = Value(cells.KeyAt(cell));
    const FloatsOfRow floats = rows.Floats(cells.RowAt(cell));
    std::uint64_t low = Mix64(key ^ 0x9E3779B97F4A7C15ULL);
    std::uint64_t high = Mix64(key ^ 0xC2B2AE3D27D4EB4FULL);
    for (std::uint32_t j = 0; j < rows.floats; ++j) {
      std::uint32_t word = 0;
      const float value = floats.Read(j);
      memcpy(&word, &value, sizeof(word));
      low = Mix64(low + word + 1);
      high = Mix64(high ^ (word + 1ULL));
    }
    return {low, high};
  }
};

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_DIGEST_H_
