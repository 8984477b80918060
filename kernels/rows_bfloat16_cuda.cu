// Compiles the launches over rows of bfloat16 for the CUDA backend.
#include "kernels/backend/cuda.cuh"
#include "kernels/row_launches.inl"

namespace slotwise {

template struct RowLaunches<CudaBackend, body::BFloat16>;

}  // namespace slotwise
