// Implements Stream::Convert for every backend.
//
// Included by shard_cpu.cc and shard_cuda.cu alone.
#ifndef SLOTWISE_KERNELS_CONVERT_INL_
#define SLOTWISE_KERNELS_CONVERT_INL_

#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "kernels/backend/concept.h"
#include "kernels/body/convert.h"
#include "kernels/dispatch.h"
#include "kernels/stream.h"

namespace slotwise {

template <Backend B>
void ConvertOn(typename B::Queue& queue, ConstNumbers from, std::size_t size, Numbers to) {
  if (from.type != DataType::kFloat32 && to.type != DataType::kFloat32) {
    throw std::invalid_argument("a conversion is from float32 or to it");
  }
  const bool by_fours = size % 4 == 0 && LiesByFours(from) && LiesByFours(to);
  const auto convert = [&]<class From, class To>(const From* in, To* out) {
    constexpr std::uint32_t kRow = B::kRowOfNumbers;
    const auto rows = static_cast<std::uint32_t>((size + kRow - 1) / kRow);
    // Tiles for rows of an odd length load number by number.
    B::ForEachTile(queue, rows, by_fours ? kRow : kRow - 1,
                   body::ConvertNumbers<From, To>{in, out, kRow, size});
  };
  if (to.type == DataType::kFloat32) {
    WithElements(from, [&](const auto* in) { convert(in, static_cast<float*>(to.data)); });
  } else {
    WithElements(to, [&]<class T>(const T*) {
      convert(static_cast<const float*>(from.data), static_cast<T*>(to.data));
    });
  }
}

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_CONVERT_INL_
