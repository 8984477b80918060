// Runs the IngestCopyOn of ingest_copy.inl on the CPU backend (backend/cpu.h).
#include <algorithm>
#include <cstring>

#include "kernels/backend/cpu.h"
#include "kernels/backend/host_memory.h"
#include "kernels/ingest_copy.inl"

namespace slotwise {
namespace {

// Works on the calling thread, because the other threads are the engine's.
class CpuIngestCopy final : public IngestCopy {
 public:
  std::shared_ptr<std::byte[]> Take(std::size_t bytes) override {
    return {static_cast<std::byte*>(AllocateAligned(std::max(bytes, kCacheLine))),
            [](std::byte* memory) { FreeAligned(memory); }};
  }
  void Copy(std::span<const ArrivingArray> arrays, std::span<ArrivedArray> found) override {
    on_cpu_.Copy(arrays, found.data());
    for (std::size_t i = 0; i < arrays.size(); ++i) found[i].words = HashedWords(arrays[i]);
  }
  void Download(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }

 private:
  CpuQueue queue_{1};
  IngestCopyOn<CpuBackend> on_cpu_{queue_};
};

}  // namespace

std::unique_ptr<IngestCopy> MakeCpuIngestCopy() { return std::make_unique<CpuIngestCopy>(); }

}  // namespace slotwise
