#include <cstdint>

#include "kernels/backend/cuda_check.cuh"
#include "server/collective/nccl_sum.h"

namespace slotwise {
namespace {

// The types of blocks: an element in memory, and what it is as a float.
struct Float32 {
  using Element = float;
  __device__ static float Wide(float value) { return value; }
};
struct Float16 {
  using Element = std::uint16_t;
  __device__ static float Wide(std::uint16_t bits) { return FromFloat16(bits); }
};
struct BFloat16 {
  using Element = std::uint16_t;
  __device__ static float Wide(std::uint16_t bits) { return FromBFloat16(bits); }
};

// So many elements, loaded or stored at once.
template <class T, int kCount>
struct alignas(kCount * sizeof(T)) Several {
  T items[kCount];
};

template <class Type, int kCount>
__global__ void SumKernel(const Several<typename Type::Element, kCount>* received,
                          const Several<typename Type::Element, kCount>* own, int me, int ranks,
                          std::size_t size, Several<float, kCount>* out) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= size) return;
  Several<float, kCount> sum = {};
  for (int r = 0; r < ranks; ++r) {
    const auto more = r == me ? own[i] : received[r * size + i];
    for (int k = 0; k < kCount; ++k) sum.items[k] += Type::Wide(more.items[k]);
  }
  out[i] = sum;
}

template <class Type, int kCount>
void Launch(const RankSum& sum) {
  using Blocks = const Several<typename Type::Element, kCount>*;
  constexpr std::size_t kThreads = 256;
  const std::size_t size = sum.size / kCount;
  const auto blocks = static_cast<unsigned>((size + kThreads - 1) / kThreads);
  SumKernel<Type, kCount><<<blocks, kThreads, 0, sum.stream>>>(
      static_cast<Blocks>(sum.received), static_cast<Blocks>(sum.own), sum.me, sum.ranks, size,
      reinterpret_cast<Several<float, kCount>*>(sum.out));
  SLOTWISE_CUDA_TRY(cudaGetLastError());
}

bool IsAligned(const void* array, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(array) % bytes == 0;
}

template <class Type>
void SumOf(const RankSum& sum) {
  const bool by_fours = sum.size % 4 == 0 && IsAligned(sum.own, 4 * sizeof(typename Type::Element)) &&
                        IsAligned(sum.out, 4 * sizeof(float));
  return by_fours ? Launch<Type, 4>(sum) : Launch<Type, 1>(sum);
}

}  // namespace

void SumInRankOrder(const RankSum& sum) {
  if (sum.size == 0) return;
  switch (sum.type) {
    case DataType::kFloat32:
      return SumOf<Float32>(sum);
    case DataType::kFloat16:
      return SumOf<Float16>(sum);
    case DataType::kBFloat16:
      return SumOf<BFloat16>(sum);
  }
}

}  // namespace slotwise
