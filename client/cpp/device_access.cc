#include "client/cpp/device_access.h"

#include <cstring>
#include <map>
#include <mutex>

#include "client/cpp/rank_address.h"
#include "wire/array_align.h"
#include "wire/shared_memory.h"

namespace slotwise::client {
namespace {

// The host's memory: work on it is done when it was asked for.
class HostPoint final : public StreamPoint {
 public:
  bool Passed() override { return true; }
  Status Wait() override { return {}; }
};

class HostAccess final : public DeviceAccess {
 public:
  Result<std::shared_ptr<std::byte[]>> Map(int descriptor, std::uint64_t bytes) override {
    const auto memory = SharedMemory::Open(descriptor, bytes);
    if (!memory) return Status(StatusCode::kInternal, "the memory that the server shares cannot be mapped");
    return std::shared_ptr<std::byte[]>(memory, memory->bytes().data());
  }
  Result<std::shared_ptr<StreamPoint>> Mark(void* /*stream*/) override {
    return std::shared_ptr<StreamPoint>(std::make_shared<HostPoint>());
  }
  Result<std::shared_ptr<StreamPoint>> CopyIn(void* stream, std::byte* to, const Pieces& pieces) override {
    for (const auto& piece : pieces) {
      if (!piece.empty()) std::memcpy(to, piece.data(), piece.size());
      to += PaddedBytes(piece.size());
    }
    return Mark(stream);
  }
};

}  // namespace

Result<std::shared_ptr<DeviceAccess>> DeviceAccess::Find(const std::string& gpu) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<DeviceAccess>> found;
  const std::lock_guard lock(mutex);
  if (const auto known = found.find(gpu); known != found.end()) return known->second;
  auto access = gpu == kHostMemory ? Result<std::shared_ptr<DeviceAccess>>(std::make_shared<HostAccess>())
                                   : FindCudaDevice(gpu);
  if (access.ok()) found.emplace(gpu, *access);
  return access;
}

}  // namespace slotwise::client
