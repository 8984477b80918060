// The CPU: the shard of shard.inl on the backend of backend/cpu.h.
#include <tbb/info.h>

#include <cstring>

#include "kernels/backend/cpu.h"
#include "kernels/shard.inl"

namespace slotwise {
namespace {

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int threads) : queue_(threads > 0 ? threads : tbb::info::default_concurrency()) {}

  std::string Name() const override { return "cpu"; }
  Result<std::unique_ptr<Shard>> MakeShard(const TableOptions& options, const ShardPlace& place) override {
    return MakeShardOn<CpuBackend>(queue_, options, place);
  }
  void* Allocate(std::size_t bytes) override { return AllocateAligned(std::max(bytes, kCacheLine)); }
  void Free(void* memory) noexcept override { FreeAligned(memory); }
  HostMemory AllocateHost(std::size_t bytes) override { return {Allocate(bytes), FreeAligned}; }
  bool SharesHostMemory() const override { return true; }
  void Upload(void* device, const void* host, std::size_t bytes) override { Copy(device, host, bytes); }
  void Download(void* host, const void* device, std::size_t bytes) override { Copy(host, device, bytes); }

 private:
  static void Copy(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
  }

  CpuQueue queue_;
};

}  // namespace

std::unique_ptr<Device> MakeCpuDevice(int threads) { return std::make_unique<CpuDevice>(threads); }

}  // namespace slotwise
