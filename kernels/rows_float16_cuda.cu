// Compiles the launches over rows of float16 for the CUDA backend.
#include "kernels/backend/cuda.cuh"
#include "kernels/row_launches.inl"

namespace slotwise {

template struct RowLaunches<CudaBackend, body::Float16>;

}  // namespace slotwise
