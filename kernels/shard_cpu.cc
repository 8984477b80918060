// Makes the CPU device: the shard of shard.inl on the CPU backend (backend/cpu.h).
#include <tbb/info.h>

#include "kernels/backend/cpu.h"
#include "kernels/backend/cpu_begin_threads.h"
#include "kernels/backend/host_memory.h"
#include "kernels/body/add_to_each.h"
#include "kernels/convert.inl"
#include "kernels/shard.inl"
#include "kernels/sum_over_ranks.inl"

namespace slotwise {

extern template struct RowLaunches<CpuBackend, body::Float16>;
extern template struct RowLaunches<CpuBackend, body::BFloat16>;

void CpuStream::Convert(ConstNumbers from, std::size_t size, Numbers to) {
  ConvertOn<CpuBackend>(queue_, from, size, to);
}

void CpuStream::SumOverRanks(const RankBlocks& blocks, float* sum) {
  SumBlocksOn<CpuBackend>(queue_, blocks, sum);
}

void CpuStream::AddToEach(std::uint32_t* to, const std::uint32_t* from, std::size_t count,
                          std::uint32_t add) {
  CpuBackend::ForEach(queue_, count, body::AddToEach{from, to, add});
}

void SumOverRanksOnHost(const RankBlocks& blocks, float* sum) {
  constexpr std::uint32_t kRow = 1024;
  WithSumOf(blocks, kRow, sum, [](auto sum_row, std::uint32_t rows) {
    for (std::uint32_t row = 0; row < rows; ++row) sum_row(CpuTile{}, row);
  });
}

namespace {

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int threads) : queue_(threads > 0 ? threads : tbb::info::default_concurrency()) {}

  std::string Name() const override { return "cpu"; }
  Result<std::unique_ptr<Shard>> MakeShard(const TableOptions& options, const ShardPlace& place) override {
    return MakeShardOn<CpuBackend>(queue_, options, place);
  }
  std::unique_ptr<AllToAllPlan> MakeAllToAllPlan() override {
    return std::make_unique<AllToAllPlanOn<CpuBackend>>();
  }
  void* Allocate(std::size_t bytes) override { return AllocateAligned(std::max(bytes, kCacheLine)); }
  void Free(void* memory) noexcept override { FreeAligned(memory); }
  HostMemory AllocateHost(std::size_t bytes) override {
    return {Allocate(bytes),
            {[](void* memory, int /*ordinal*/) noexcept { FreeAligned(memory); }, Ordinal()}};
  }
  std::unique_ptr<IngestCopy> MakeIngestCopy() override { return MakeCpuIngestCopy(); }
  std::unique_ptr<DeviceSharedBuffer> MakeSharedBuffer(std::size_t /*bytes*/) override { return nullptr; }
  std::string Uuid() const override { return "host"; }
  bool SharesHostMemory() const override { return true; }
  std::uint64_t MemoryBytes() const override { return HostMemoryBytesInAll(); }
  std::uint64_t FreeMemoryBytes() const override { return ReadHostMemory().available; }
  std::uint64_t MemoryForTables() const override { return HostMemoryForTables(); }
  Stream& WorkStream() override { return work_; }
  std::unique_ptr<Stream> MakeStream() override { return std::make_unique<CpuStream>(queue_); }
  void Wait() override {}  // every call has done its work when it returns
  void UseOnThisThread() override {}
  int Ordinal() const override { return -1; }

 private:
  CpuQueue queue_;
  CpuStream work_{queue_};
};

}  // namespace

std::unique_ptr<Device> MakeCpuDevice(int threads, int processes) {
  ShareHostMemory(static_cast<std::size_t>(std::max(processes, 1)));
  BeginCpuThreads(threads);
  return std::make_unique<CpuDevice>(threads);
}

std::uint64_t HostMemoryBytesInAll() { return ReadHostMemory().total; }

void KeepHostMemoryFromTables(std::uint64_t bytes, std::uint64_t bytes_a_row) {
  KeepFromTables(bytes, bytes_a_row);
}

}  // namespace slotwise
