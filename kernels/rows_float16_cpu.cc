// Compiles the launches over rows of float16 for the CPU backend.
#include "kernels/backend/cpu.h"
#include "kernels/row_launches.inl"

namespace slotwise {

template struct RowLaunches<CpuBackend, body::Float16>;

}  // namespace slotwise
