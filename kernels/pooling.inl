// Pooling: the rows of a bag become one vector, and what the combiner divides by.
//
// Thread-safety: the queue's. All arrays are in device memory. Nothing waits or allocates.
#ifndef SLOTWISE_KERNELS_POOLING_INL_
#define SLOTWISE_KERNELS_POOLING_INL_

#include <cstdint>
#include <span>

#include "kernels/backend/concept.h"
#include "kernels/body/pool.h"
#include "kernels/body/rows.h"
#include "kernels/dispatch.h"
#include "kernels/shard.h"
#include "kernels/sharder.inl"

namespace slotwise {

template <Backend B>
class Pooling {
 public:
  using Queue = typename B::Queue;

  explicit Pooling(const TableOptions& options) : combiner_(options.combiner), dim_(options.dim) {}

  bool Divides() const { return slotwise::Divides(combiner_); }

  // What the combiner divides a bag by. `weights` are those of the keys that `offsets` count, or null: all 1.
  // REQUIRES: Divides().
  body::BagDivisor DivisorOf(const std::uint32_t* offsets, const float* weights) const {
    return {offsets, weights, combiner_ == Combiner::kSqrtn};
  }

  // Writes each bag's sum of rows to `out`, at the bag's place in `places` (body::PoolBags), or in the order
  // of the bags if that is null. `row_of` are the rows of the kept keys.
  void Pool(Queue& queue, const KeptKeys& kept, const RowIndex* row_of, const body::RowsRef& rows,
            Numbers out, const std::uint32_t* places) const {
    WithElements(out, [&]<class T>(const T*) {
      B::ForEachRun(
          queue, kept.bags, dim_,
          body::PoolBags<T>{rows, row_of, kept.offsets, kept.weights, places, static_cast<T*>(out.data)});
    });
  }

  // See Shard::DivideBags.
  void Divide(Queue& queue, std::span<const std::uint32_t> offsets, const float* weights,
              float* values) const {
    if (!Divides()) return;
    const auto bags = static_cast<std::uint32_t>(offsets.size() - 1);
    B::ForEachTile(queue, bags, dim_, body::DivideBags{DivisorOf(offsets.data(), weights), dim_, values});
  }

 private:
  const Combiner combiner_;
  const std::uint32_t dim_;
};

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_POOLING_INL_
