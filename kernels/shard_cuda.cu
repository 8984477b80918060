// Makes CUDA devices: the shard of shard.inl on the CUDA backend (backend/cuda.cuh).
#include <algorithm>
#include <array>
#include <cstdio>

#include "kernels/backend/cuda.cuh"
#include "kernels/backend/cuda_shared_buffer.cuh"
#include "kernels/body/add_to_each.h"
#include "kernels/convert.inl"
#include "kernels/ingest_copy.inl"
#include "kernels/numa.h"
#include "kernels/shard.inl"
#include "kernels/sum_over_ranks.inl"

namespace slotwise {

extern template struct RowLaunches<CudaBackend, body::Float16>;
extern template struct RowLaunches<CudaBackend, body::BFloat16>;

void CudaStream::Convert(ConstNumbers from, std::size_t size, Numbers to) {
  ConvertOn<CudaBackend>(queue_, from, size, to);
}

void CudaStream::SumOverRanks(const RankBlocks& blocks, float* sum) {
  SumBlocksOn<CudaBackend>(queue_, blocks, sum);
}

void CudaStream::AddToEach(std::uint32_t* to, const std::uint32_t* from, std::size_t count,
                           std::uint32_t add) {
  CudaBackend::ForEach(queue_, count, body::AddToEach{from, to, add});
}

namespace {

// Has a stream of its own, which goes before the engine's, because rounds wait for the arrays that it copies.
class CudaIngestCopy final : public IngestCopy {
 public:
  // REQUIRES: the device is this thread's.
  explicit CudaIngestCopy(int ordinal, int priority)
      : ordinal_(ordinal), stream_(std::make_shared<CudaStream>(priority)), on_cuda_(stream_->queue()) {}
  ~CudaIngestCopy() override {
    cudaSetDevice(ordinal_);
    cudaFreeHost(found_);
  }

  std::shared_ptr<std::byte[]> Take(std::size_t bytes) override {
    SLOTWISE_CUDA_TRY(cudaSetDevice(ordinal_));
    const auto memory = std::make_shared<CudaMemory>(stream_->queue().stream(), bytes);
    // The stream outlives the memory, which is freed in the stream's order, whichever thread releases it.
    struct Owner {
      Owner(int on, std::shared_ptr<CudaStream> of) : ordinal(on), stream(std::move(of)) {}
      ~Owner() {
        cudaSetDevice(ordinal);
        memory.reset();
      }
      int ordinal;
      std::shared_ptr<CudaStream> stream;
      std::shared_ptr<CudaMemory> memory;
    };
    const auto owner = std::make_shared<Owner>(ordinal_, stream_);
    owner->memory = memory;
    return {owner, static_cast<std::byte*>(memory->data())};
  }

  void Copy(std::span<const ArrivingArray> arrays, std::span<ArrivedArray> found) override {
    SLOTWISE_CUDA_TRY(cudaSetDevice(ordinal_));
    if (arrays.size() > room_) {
      cudaFreeHost(std::exchange(found_, nullptr));
      room_ = 0;
      SLOTWISE_CUDA_TRY(cudaHostAlloc(&found_, arrays.size() * sizeof(ArrivedArray), cudaHostAllocDefault));
      room_ = arrays.size();
    }
    auto* const told = static_cast<ArrivedArray*>(found_);
    on_cuda_.Copy(arrays, told);
    stream_->Wait();
    std::copy_n(told, arrays.size(), found.begin());
    for (std::size_t i = 0; i < arrays.size(); ++i) found[i].words = HashedWords(arrays[i]);
  }

  void Download(void* to, const void* from, std::size_t bytes) override {
    SLOTWISE_CUDA_TRY(cudaSetDevice(ordinal_));
    stream_->Copy(to, from, bytes);
    stream_->Wait();
  }

 private:
  const int ordinal_;
  const std::shared_ptr<CudaStream> stream_;
  IngestCopyOn<CudaBackend> on_cuda_;
  void* found_ = nullptr;  // pinned
  std::size_t room_ = 0;   // arrays that it has room for
};

class CudaDevice final : public Device {
 public:
  // REQUIRES: cudaSetDevice(ordinal) was called, so that the queue is made on that device.
  explicit CudaDevice(int ordinal) : ordinal_(ordinal) {
    cudaDeviceProp properties;
    SLOTWISE_CUDA_TRY(cudaGetDeviceProperties(&properties, ordinal));
    name_ = std::string("cuda ") + properties.name;
    for (const char byte : properties.uuid.bytes) {
      std::array<char, 3> digits{};
      std::snprintf(digits.data(), digits.size(), "%02x", static_cast<unsigned>(byte) & 0xFFU);
      uuid_ += digits.data();
    }
    std::array<char, 32> bus_id{};
    SLOTWISE_CUDA_TRY(cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), ordinal));
    numa_node_ = NumaNodeOfPciDevice(bus_id.data());
  }

  std::string Name() const override { return name_; }
  Result<std::unique_ptr<Shard>> MakeShard(const TableOptions& options, const ShardPlace& place) override {
    return MakeShardOn<CudaBackend>(work_.queue(), options, place);
  }
  std::unique_ptr<AllToAllPlan> MakeAllToAllPlan() override {
    return std::make_unique<AllToAllPlanOn<CudaBackend>>();
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
  std::unique_ptr<IngestCopy> MakeIngestCopy() override {
    UseOnThisThread();
    return std::make_unique<CudaIngestCopy>(ordinal_, FirstPriority());
  }
  std::unique_ptr<DeviceSharedBuffer> MakeSharedBuffer(std::size_t bytes) override {
    UseOnThisThread();
    return CudaSharedBuffer::Make(ordinal_, bytes);
  }
  std::string Uuid() const override { return uuid_; }
  bool SharesHostMemory() const override { return false; }
  std::uint64_t MemoryBytes() const override {
    std::size_t free = 0;
    std::size_t total = 0;
    SLOTWISE_CUDA_TRY(cudaMemGetInfo(&free, &total));
    return total;
  }
  std::uint64_t FreeMemoryBytes() const override {
    std::size_t free = 0;
    std::size_t total = 0;
    SLOTWISE_CUDA_TRY(cudaSetDevice(ordinal_));
    SLOTWISE_CUDA_TRY(cudaMemGetInfo(&free, &total));
    return free;
  }
  Stream& WorkStream() override { return work_; }
  std::unique_ptr<Stream> MakeStream() override { return std::make_unique<CudaStream>(FirstPriority()); }
  void Wait() override { SLOTWISE_CUDA_TRY(cudaDeviceSynchronize()); }
  void UseOnThisThread() override { SLOTWISE_CUDA_TRY(cudaSetDevice(ordinal_)); }
  int Ordinal() const override { return ordinal_; }

 private:
  static int FirstPriority() {
    int last = 0;
    int first = 0;
    SLOTWISE_CUDA_TRY(cudaDeviceGetStreamPriorityRange(&last, &first));
    return first;
  }
  // A thread that has not chosen a device would open the first one, in which this process may have no part.
  static void FreePinned(void* memory, int ordinal) noexcept {
    cudaSetDevice(ordinal);
    cudaFreeHost(memory);
  }

  int ordinal_;
  int numa_node_ = -1;
  std::string name_;
  std::string uuid_;
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
