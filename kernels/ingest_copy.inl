// IngestCopyOn copies arrays on any backend. Each launch takes several arrays, and reports on all of them at
// once.
//
// Included by ingest_copy_cpu.cc and shard_cuda.cu, and by the simulator, on a backend that stops midway.
#ifndef SLOTWISE_KERNELS_INGEST_COPY_INL_
#define SLOTWISE_KERNELS_INGEST_COPY_INL_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/backend/concept.h"
#include "kernels/body/ingest_copy.h"
#include "kernels/ingest_copy.h"

namespace slotwise {

template <Backend B>
class IngestCopyOn {
 public:
  // REQUIRES: `queue` outlives the IngestCopyOn.
  explicit IngestCopyOn(typename B::Queue& queue) : queue_(queue) {
    constexpr std::uint32_t kMost = body::ArrivingArrays::kMost;
    sums_.Reserve(queue, body::ArrivingArrays::PlaceOf(kMost, 0));
    wrong_.Reserve(queue, kMost);
    B::ForEach(queue, kMost, body::ClearArrivals{sums_.data(), wrong_.data()});
  }

  // Begins to copy arrays, and to report on them in `found`, in memory that the device can write.
  void Copy(std::span<const ArrivingArray> arrays, ArrivedArray* found) {
    constexpr std::size_t kMost = body::ArrivingArrays::kMost;
    for (std::size_t first = 0; first < arrays.size(); first += kMost) {
      CopySome(arrays.subspan(first, std::min(kMost, arrays.size() - first)), found + first);
    }
  }

 private:
  void CopySome(std::span<const ArrivingArray> arrays, ArrivedArray* found) {
    using All = body::ArrivingArrays;
    All all{};
    all.count = static_cast<std::uint32_t>(arrays.size());
    all.sums = sums_.data();
    all.wrong = wrong_.data();
    std::uint64_t threads = 0;
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      All::Array& array = all.arrays[i] = ArrayOf(arrays[i]);
      array.first_thread = static_cast<std::uint32_t>(threads);
      const bool halves = array.words == All::Words32::kFloat16 || array.words == All::Words32::kBFloat16;
      const std::uint64_t bytes = array.size * (halves ? 2 : array.words == All::Words32::kWide ? 8 : 4);
      const std::uint64_t vectors = (bytes + sizeof(body::Words) - 1) / sizeof(body::Words);
      threads += (vectors + All::kVectorsOfGroup - 1) / All::kVectorsOfGroup * All::kGroup;
    }
    B::ForEach(queue_, static_cast<std::uint32_t>(threads), body::CopyArrivals<typename B::Atomics>{all});
    for (std::uint32_t i = 0; i < all.count; ++i) {
      const All::Array& array = all.arrays[i];
      if (!array.rises) continue;
      B::ForEach(queue_, array.size,
                 body::CheckOffsets<typename B::Atomics>{reinterpret_cast<const std::uint32_t*>(array.to),
                                                         array.size, array.last, array.one_key_a_bag,
                                                         all.wrong + i});
    }
    B::ForEach(queue_, all.count, body::ReportArrivals{all.sums, all.wrong, found});
  }

  static body::ArrivingArrays::Array ArrayOf(const ArrivingArray& given) {
    using Words32 = body::ArrivingArrays::Words32;
    body::ArrivingArrays::Array array{.from = static_cast<const body::Words*>(given.from),
                                      .to = static_cast<body::Words*>(given.to),
                                      .size = given.size,
                                      .last = given.last,
                                      .first_thread = 0,
                                      .words = Words32::kAsTheyAre,
                                      .rises = given.kind == ArrivingArray::Kind::kOffsets ||
                                               given.kind == ArrivingArray::Kind::kWideOffsets,
                                      .one_key_a_bag = given.one_key_a_bag};
    if (given.kind == ArrivingArray::Kind::kKeys) array.size *= 2;
    if (given.kind == ArrivingArray::Kind::kWideOffsets) array.words = Words32::kWide;
    if (given.kind == ArrivingArray::Kind::kUnitOffsets) array.words = Words32::kIndices;
    if (given.kind == ArrivingArray::Kind::kNumbers) {
      array.words = given.type == DataType::kFloat32   ? Words32::kFloat32
                    : given.type == DataType::kFloat16 ? Words32::kFloat16
                                                       : Words32::kBFloat16;
    }
    return array;
  }

  typename B::Queue& queue_;
  typename B::template Scratch<std::uint64_t> sums_, wrong_;
};

// Returns how many 32-bit words an array is hashed as.
inline std::uint64_t HashedWords(const ArrivingArray& array) {
  return array.kind == ArrivingArray::Kind::kKeys ? 2 * array.size : array.size;
}

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_INGEST_COPY_INL_
