#include "client/cpp/device_access.h"

#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "client/cpp/rank_address.h"
#include "wire/array_align.h"
#include "wire/shared_memory.h"
#include "wire/spare_processors.h"

namespace slotwise::client {
namespace {

using std::chrono::steady_clock;

// A loop polls a point that is still far away once in this time.
constexpr std::chrono::microseconds kRarely{100};

// Polls a point in a loop's thread.
class Watch : public std::enable_shared_from_this<Watch> {
 public:
  Watch(BusyPolling& loop, std::shared_ptr<StreamPoint> point, std::function<void(Status)> then)
      : loop_(loop), timer_(loop.context()), point_(std::move(point)), then_(std::move(then)) {}

  void Look() {
    if (point_->Passed()) return then_(point_->Wait());
    const auto again = [self = shared_from_this()](auto...) { self->Look(); };
    if (steady_clock::now() - begin_ < kBusyPollingTime) return asio::post(loop_.context(), again);
    timer_.expires_after(kRarely);
    timer_.async_wait(again);
  }

 private:
  BusyPolling& loop_;
  asio::steady_timer timer_;
  const std::shared_ptr<StreamPoint> point_;
  const std::function<void(Status)> then_;
  const steady_clock::time_point begin_ = steady_clock::now();
};

// The host's memory: work on it is done as soon as it is called.
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

void WhenPassed(BusyPolling& loop, std::shared_ptr<StreamPoint> point, std::function<void(Status)> then) {
  if (!HasSpareProcessors() || point->Passed()) return then(point->Wait());
  std::make_shared<Watch>(loop, std::move(point), std::move(then))->Look();
}

}  // namespace slotwise::client
