// Conversion writes numbers of one type as another: floats as 16 bits, or 16 bits as floats.
#ifndef SLOTWISE_KERNELS_BODY_CONVERT_H_
#define SLOTWISE_KERNELS_BODY_CONVERT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/body/portable.h"

namespace slotwise::body {

// Converts one row, which one tile works on. Rows are cuts of the arrays: `row` elements, the last one
// shorter. From, To: float, Float16 or BFloat16.
template <class From, class To>
struct ConvertNumbers {
  const From* from;  // [size]
  To* to;            // [size]
  std::uint32_t row;
  std::size_t size;

  template <class Tile>
  SLOTWISE_HD void operator()(Tile tile, std::uint32_t i) const {
    const std::size_t first = static_cast<std::size_t>(i) * row;
    const std::size_t left = size - first;
    const From* in = from + first;
    To* out = to + first;
    ForEachChunk(tile, left < row ? static_cast<std::uint32_t>(left) : row, [=](auto chunk) {
      using Chunk = decltype(chunk);
      Vectors<Chunk> numbers;
      SLOTWISE_UNROLL
      for (std::uint32_t v = 0; v < Chunk::kVectors; ++v) numbers[v] = chunk.Load(in, v);
      SLOTWISE_UNROLL
      for (std::uint32_t v = 0; v < Chunk::kVectors; ++v) chunk.Store(out, v, numbers[v]);
    });
  }
};

}  // namespace slotwise::body

#endif  // SLOTWISE_KERNELS_BODY_CONVERT_H_
