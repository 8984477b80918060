// A CudaSharedBuffer is device memory that another process can map by a descriptor.
//
// Memory that cudaIpcGetMemHandle exports must not be freed while a process has it open. Memory of the
// virtual-memory API ends with the last process that has it, so the server may release it at any time.
#ifndef SLOTWISE_KERNELS_BACKEND_CUDA_SHARED_BUFFER_CUH_
#define SLOTWISE_KERNELS_BACKEND_CUDA_SHARED_BUFFER_CUH_

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <cstddef>
#include <memory>
#include <utility>

#include "kernels/backend/cuda_check.cuh"
#include "kernels/backend/cuda_growing.cuh"
#include "kernels/ingest_copy.h"

namespace slotwise {

class CudaSharedBuffer final : public DeviceSharedBuffer {
 public:
  // Makes a buffer on the current device, which is `ordinal`; null as Device::MakeSharedBuffer says.
  static std::unique_ptr<CudaSharedBuffer> Make(int ordinal, std::size_t bytes) {
    const CudaVirtualMemory& api = CudaVirtualMemory::Get();
    CUmemAllocationProp what{};
    what.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    what.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    what.location.id = ordinal;
    what.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    std::size_t piece = 0;
    std::size_t free = 0;
    std::size_t total = 0;
    SLOTWISE_CUDA_TRY(cudaMemGetInfo(&free, &total));
    if (api.granularity(&piece, &what, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) != CUDA_SUCCESS) return nullptr;
    bytes = (bytes + piece - 1) / piece * piece;
    if (bytes == 0 || free < bytes || free - bytes < total / 16) return nullptr;
    std::unique_ptr<CudaSharedBuffer> shared_buffer(new CudaSharedBuffer(api, ordinal));
    if (!shared_buffer->Map(what, bytes)) return nullptr;
    SLOTWISE_CUDA_TRY(cudaMemsetAsync(shared_buffer->bytes_.data(), 0, bytes, cudaStreamPerThread));
    SLOTWISE_CUDA_TRY(cudaStreamSynchronize(cudaStreamPerThread));
    return shared_buffer;
  }

  // REQUIRES: the device is done with the memory.
  ~CudaSharedBuffer() override {
    cudaSetDevice(ordinal_);
    if (descriptor_ >= 0) close(descriptor_);
    if (mapped_) api_.unmap(at_, size_);
    if (at_ != 0) api_.free_addresses(at_, size_);
    if (made_) api_.release(memory_);
  }

 private:
  CudaSharedBuffer(const CudaVirtualMemory& api, int ordinal) : api_(api), ordinal_(ordinal) {}

  bool Map(const CUmemAllocationProp& what, std::size_t bytes) {
    size_ = bytes;
    made_ = api_.create(&memory_, bytes, &what, 0) == CUDA_SUCCESS;
    if (!made_ || api_.export_memory(&descriptor_, memory_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) !=
                      CUDA_SUCCESS) {
      return false;
    }
    if (api_.reserve(&at_, bytes, 0, 0, 0) != CUDA_SUCCESS) return false;
    mapped_ = api_.map(at_, bytes, 0, memory_, 0) == CUDA_SUCCESS;
    const CUmemAccessDesc access{what.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    if (!mapped_ || api_.set_access(at_, bytes, &access, 1) != CUDA_SUCCESS) return false;
    bytes_ = {reinterpret_cast<std::byte*>(at_), bytes};
    return true;
  }

  const CudaVirtualMemory& api_;
  const int ordinal_;
  std::size_t size_ = 0;
  CUmemGenericAllocationHandle memory_{};
  CUdeviceptr at_ = 0;
  bool made_ = false;
  bool mapped_ = false;
};

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_BACKEND_CUDA_SHARED_BUFFER_CUH_
