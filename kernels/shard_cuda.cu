// A CUDA device: the shard of shard.inl on the backend of backend/cuda.cuh.
#include <algorithm>
#include <array>

#include "kernels/backend/cuda.cuh"
#include "kernels/convert.inl"
#include "kernels/numa.h"
#include "kernels/shard.inl"
#include "kernels/sum_over_ranks.inl"

namespace slotwise {

void CudaStream::Convert(ConstNumbers from, std::size_t size, Numbers to) {
  ConvertOn<CudaBackend>(queue_, from, size, to);
}

void CudaStream::SumOverRanks(const RankBlocks& blocks, float* sum) {
  SumBlocksOn<CudaBackend>(queue_, blocks, sum);
}

namespace {

class CudaDevice final : public Device {
 public:
  // REQUIRES: cudaSetDevice(ordinal) was called, so that the queue is made on that device.
  explicit CudaDevice(int ordinal) : ordinal_(ordinal) {
    cudaDeviceProp properties;
    SLOTWISE_CUDA_TRY(cudaGetDeviceProperties(&properties, ordinal));
    name_ = std::string("cuda ") + properties.name;
    std::array<char, 32> bus_id{};
    SLOTWISE_CUDA_TRY(cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), ordinal));
    numa_node_ = NumaNodeOfPciDevice(bus_id.data());
  }

  std::string Name() const override { return name_; }
  Result<std::unique_ptr<Shard>> MakeShard(const TableOptions& options, const ShardPlace& place) override {
    return MakeShardOn<CudaBackend>(work_.queue(), options, place);
  }
  std::unique_ptr<TrafficPlan> MakeTrafficPlan() override {
    return std::make_unique<TrafficPlanOn<CudaBackend>>();
  }
  void* Allocate(std::size_t bytes) override {
    void* memory = nullptr;
    SLOTWISE_CUDA_TRY(cudaMalloc(&memory, std::max<std::size_t>(bytes, 1)));
    return memory;
  }
  void Free(void* memory) noexcept override { cudaFree(memory); }
  HostMemory AllocateHost(std::size_t bytes) override {
    UseOnThisThread();
    const PreferNumaNode near(numa_node_);
    void* memory = nullptr;
    SLOTWISE_CUDA_TRY(cudaHostAlloc(&memory, std::max<std::size_t>(bytes, 1), cudaHostAllocPortable));
    return {memory, {FreePinned, ordinal_}};
  }
  bool SharesHostMemory() const override { return false; }
  std::uint64_t MemoryBytes() const override {
    std::size_t free = 0;
    std::size_t total = 0;
    SLOTWISE_CUDA_TRY(cudaMemGetInfo(&free, &total));
    return total;
  }
  Stream& WorkStream() override { return work_; }
  std::unique_ptr<Stream> MakeStream() override {
    int last = 0;
    int first = 0;
    SLOTWISE_CUDA_TRY(cudaDeviceGetStreamPriorityRange(&last, &first));
    return std::make_unique<CudaStream>(first);
  }
  void Wait() override { SLOTWISE_CUDA_TRY(cudaDeviceSynchronize()); }
  void UseOnThisThread() override { SLOTWISE_CUDA_TRY(cudaSetDevice(ordinal_)); }
  int Ordinal() const override { return ordinal_; }

 private:
  // A thread that has not chosen a device would open the first one, in which this process may have no part.
  static void FreePinned(void* memory, int ordinal) noexcept {
    cudaSetDevice(ordinal);
    cudaFreeHost(memory);
  }

  int ordinal_;
  int numa_node_ = -1;
  std::string name_;
  CudaStream work_;
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
