// Every CUDA call is checked by one macro, which throws what CUDA says and where it was asked.
#ifndef SLOTWISE_KERNELS_BACKEND_CUDA_CHECK_CUH_
#define SLOTWISE_KERNELS_BACKEND_CUDA_CHECK_CUH_

#include <cuda_runtime_api.h>

#include <new>
#include <stdexcept>
#include <string>

namespace slotwise {

// std::bad_alloc for want of memory, which a shard turns into a Status; std::runtime_error for anything else.
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

// Returns what cudaEventQuery or cudaStreamQuery says, and throws, as above, if it is an error. "Not yet"
// is none, and must not be what cudaGetLastError says behind the next launch.
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
