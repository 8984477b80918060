// The sum that a reduce-scatter in rank order ends with, on a CUDA device.
// Thread-safety: as the device's.
#ifndef SLOTWISE_SERVER_COLLECTIVE_NCCL_SUM_H_
#define SLOTWISE_SERVER_COLLECTIVE_NCCL_SUM_H_

#include <cuda_runtime_api.h>

#include <cstddef>

#include "slotwise/data_type.h"

namespace slotwise {

// All arrays are in device memory.
struct RankSum {
  cudaStream_t stream;
  DataType type;         // of the blocks
  const void* received;  // the other ranks' blocks, in their ranks' places, `size` elements apart
  const void* own;       // this rank's block
  int me;
  int ranks;
  std::size_t size;  // elements
  float* out;
};

// out[i] = Σ over ranks, in float32, from +0 in rank order, of their blocks' element i. Enqueued on the stream. Throws
// std::runtime_error.
void SumInRankOrder(const RankSum& sum);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_COLLECTIVE_NCCL_SUM_H_
