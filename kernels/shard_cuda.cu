// A CUDA device: the shard of shard.inl on the backend of backend/cuda.cuh.
#include <algorithm>

#include "kernels/backend/cuda.cuh"
#include "kernels/shard.inl"

namespace slotwise {
namespace {

class CudaDevice final : public Device {
 public:
  // REQUIRES: cudaSetDevice(ordinal) was called, so that the queue is made on that device.
  explicit CudaDevice(int ordinal) {
    cudaDeviceProp properties;
    SLOTWISE_CUDA_TRY(cudaGetDeviceProperties(&properties, ordinal));
    name_ = std::string("cuda ") + properties.name;
  }

  std::string Name() const override { return name_; }
  Result<std::unique_ptr<Shard>> MakeShard(const TableOptions& options, const ShardPlace& place) override {
    return MakeShardOn<CudaBackend>(queue_, options, place);
  }
  void* Allocate(std::size_t bytes) override {
    void* memory = nullptr;
    SLOTWISE_CUDA_TRY(cudaMalloc(&memory, std::max<std::size_t>(bytes, 1)));
    return memory;
  }
  void Free(void* memory) noexcept override { cudaFree(memory); }
  HostMemory AllocateHost(std::size_t bytes) override {
    void* memory = nullptr;
    SLOTWISE_CUDA_TRY(cudaHostAlloc(&memory, std::max<std::size_t>(bytes, 1), cudaHostAllocPortable));
    return {memory, [](void* pinned) noexcept { cudaFreeHost(pinned); }};
  }
  bool SharesHostMemory() const override { return false; }
  void Upload(void* device, const void* host, std::size_t bytes) override {
    CudaBackend::Copy(queue_, device, host, bytes, cudaMemcpyHostToDevice);
  }
  void Download(void* host, const void* device, std::size_t bytes) override {
    CudaBackend::Copy(queue_, host, device, bytes, cudaMemcpyDeviceToHost);
  }

 private:
  std::string name_;
  CudaQueue queue_;
};

}  // namespace

int CudaDeviceCount() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();  // no driver, or no device: both mean none
  return 0;
}

Result<std::unique_ptr<Device>> MakeCudaDevice(int ordinal) {
  const int count = CudaDeviceCount();
  if (ordinal < 0 || ordinal >= count) {
    return FailedPrecondition("no CUDA device " + std::to_string(ordinal) + ": this process sees " +
                              std::to_string(count));
  }
  SLOTWISE_CUDA_TRY(cudaSetDevice(ordinal));
  return std::unique_ptr<Device>(std::make_unique<CudaDevice>(ordinal));
}

}  // namespace slotwise
