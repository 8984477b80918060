// Measures a CUDA device's memory: copies, and gathers of 16 bytes a thread.
#include <algorithm>
#include <limits>
#include <memory>

#include "bench/memory_speed.h"
#include "kernels/backend/cuda_memory.cuh"

namespace slotwise::bench {
namespace {

constexpr std::uint32_t kThreads = 256;

// Thread t reads piece t % pieces of item indices[t / pieces]. The write, which never happens, keeps the
// compiler from removing the reads.
__global__ void Gather(const uint4* memory, const std::uint32_t* indices, std::uint64_t reads,
                       std::uint32_t pieces, std::uint32_t* out) {
  const std::uint64_t t = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (t >= reads) return;
  const uint4 v = memory[std::uint64_t{indices[t / pieces]} * pieces + t % pieces];
  if ((v.x | v.y | v.z | v.w) == 0x12345678U) *out = v.x;
}

class CudaMemorySpeed final : public MemorySpeed {
 public:
  CudaMemorySpeed() {
    SLOTWISE_CUDA_TRY(cudaEventCreate(&begin_));
    SLOTWISE_CUDA_TRY(cudaEventCreate(&end_));
  }
  ~CudaMemorySpeed() override {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }

  double CopyBytesPerSecond() override {
    constexpr std::size_t kBytes = std::size_t{2} << 30;
    const CudaMemory from(queue_.stream(), kBytes);
    const CudaMemory to(queue_.stream(), kBytes);
    return 2.0 * kBytes / BestOf(5, [&] {
             SLOTWISE_CUDA_TRY(
                 cudaMemcpyAsync(to.data(), from.data(), kBytes, cudaMemcpyDeviceToDevice, queue_.stream()));
           });
  }

  double GatherSeconds(std::span<const std::uint32_t> indices, std::size_t items,
                       std::size_t item_bytes) override {
    if (indices.empty()) return 0;
    const auto pieces = static_cast<std::uint32_t>((item_bytes + sizeof(uint4) - 1) / sizeof(uint4));
    const CudaMemory memory(queue_.stream(), items * pieces * sizeof(uint4));
    const CudaMemory index(queue_.stream(), indices.size_bytes());
    const CudaMemory out(queue_.stream(), sizeof(std::uint32_t));
    SLOTWISE_CUDA_TRY(cudaMemsetAsync(memory.data(), 0, memory.bytes(), queue_.stream()));
    SLOTWISE_CUDA_TRY(cudaMemcpyAsync(index.data(), indices.data(), indices.size_bytes(),
                                      cudaMemcpyHostToDevice, queue_.stream()));
    const std::uint64_t reads = std::uint64_t{indices.size()} * pieces;
    const auto blocks = static_cast<std::uint32_t>((reads + kThreads - 1) / kThreads);
    return BestOf(5, [&] {
      Gather<<<blocks, kThreads, 0, queue_.stream()>>>(static_cast<const uint4*>(memory.data()),
                                                       static_cast<const std::uint32_t*>(index.data()), reads,
                                                       pieces, static_cast<std::uint32_t*>(out.data()));
      SLOTWISE_CUDA_TRY(cudaGetLastError());
    });
  }

 private:
  template <class Work>
  double BestOf(int runs, Work work) {
    float best = std::numeric_limits<float>::infinity();
    for (int run = 0; run < runs; ++run) {
      SLOTWISE_CUDA_TRY(cudaEventRecord(begin_, queue_.stream()));
      work();
      SLOTWISE_CUDA_TRY(cudaEventRecord(end_, queue_.stream()));
      queue_.Wait();
      float milliseconds = 0;
      SLOTWISE_CUDA_TRY(cudaEventElapsedTime(&milliseconds, begin_, end_));
      best = std::min(best, milliseconds);
    }
    return best * 1e-3;
  }

  CudaQueue queue_;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

}  // namespace

std::unique_ptr<MemorySpeed> MakeCudaMemorySpeed() { return std::make_unique<CudaMemorySpeed>(); }

}  // namespace slotwise::bench
