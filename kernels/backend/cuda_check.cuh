// One macro checks every CUDA call, and throws CUDA's message with the place of the call.
#ifndef SLOTWISE_KERNELS_BACKEND_CUDA_CHECK_CUH_
#define SLOTWISE_KERNELS_BACKEND_CUDA_CHECK_CUH_

#include <cuda_runtime_api.h>

#include <new>
#include <stdexcept>
#include <string>

namespace slotwise {

// Throws std::bad_alloc if there is no memory, which a shard turns into a Status; else std::runtime_error.
[[noreturn]] inline void ThrowCudaError(cudaError_t error, const char* call, const char* file, int line) {
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // or the next check would see it again
    throw std::bad_alloc();
  }
  throw std::runtime_error(std::string(file) + ":" + std::to_string(line) + ": " + call + ": " +
                           cudaGetErrorString(error));
}

#define SLOTWISE_CUDA_TRY(call)                                     \
  do {                                                              \
    if (const cudaError_t error = (call); error != cudaSuccess)     \
      ::slotwise::ThrowCudaError(error, #call, __FILE__, __LINE__); \
  } while (false)

// Returns whether cudaEventQuery or cudaStreamQuery said "ready", and throws, as above, if it said an error.
// "Not ready" is no error, so cudaGetLastError must not return it after the next launch.
inline bool IsReady(cudaError_t queried) {
  if (queried == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  SLOTWISE_CUDA_TRY(queried);
  return true;
}

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_BACKEND_CUDA_CHECK_CUH_
