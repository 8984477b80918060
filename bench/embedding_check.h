// Checks a table's first lookup and first step against a plain computation.
#ifndef SLOTWISE_BENCH_EMBEDDING_CHECK_H_
#define SLOTWISE_BENCH_EMBEDDING_CHECK_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "bench/sharded_table.h"
#include "slotwise/table_options.h"

namespace slotwise::bench {

// Returns the gradient of element j of bag b: a small number that varies.
inline float GradientOf(std::size_t bag, std::uint32_t j) {
  return static_cast<float>((bag * 7 + std::size_t{j} * 3) % 17) / 16.0F - 0.5F;
}

// A batch over all ranks: bag b has the rows [b · hot, (b + 1) · hot).
struct Batch {
  std::span<const std::uint32_t> rows;
  std::uint32_t bags;
  std::uint32_t hot;
};

// Collective. Looks `batch` up in an unused table, applies one step with GradientOf's gradients, and looks
// the touched rows up again. Checks some thousand bags and rows in double precision. Throws
// std::runtime_error on a difference that rounding cannot explain. Leaves `batch` set.
void CheckLookupAndStep(ShardedTable& table, const TableOptions& options, const Batch& batch);

}  // namespace slotwise::bench

#endif  // SLOTWISE_BENCH_EMBEDDING_CHECK_H_
