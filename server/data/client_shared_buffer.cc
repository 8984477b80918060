#include "server/data/client_shared_buffer.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "wire/array_align.h"
#include "wire/shared_memory.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77  // since Linux 6.5
#endif

namespace slotwise {
namespace {

constexpr std::uint64_t kLeastSharedBuffer = std::uint64_t{1} << 20;
// No connection gets more than one kShareOfOne-th of the budget for shared buffers.
constexpr std::uint64_t kShareOfOne = 8;

// Returns a descriptor of the process at the other end, which becomes readable when the process is gone; -1
// if the system does not tell.
int ProcessAt(int socket) {
  int process = -1;
  socklen_t size = sizeof(process);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &process, &size) == 0) return process;
  ucred peer{};
  size = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid <= 0) return -1;
  return static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0));
}

bool IsGone(int process) {
  pollfd asked{.fd = process, .events = POLLIN, .revents = 0};
  return poll(&asked, 1, 0) > 0;
}

// Calls make(bytes) with fewer and fewer bytes until it returns a buffer.
template <class Make>
std::shared_ptr<ClientSharedBuffer> MakeAtMost(std::uint64_t asked, std::uint64_t most, const Make& make) {
  for (std::uint64_t bytes = std::min(asked, most) >> 20 << 20; bytes >= kLeastSharedBuffer;
       bytes = (bytes / 2) >> 20 << 20) {
    if (auto made = make(bytes)) return made;
  }
  return nullptr;
}

}  // namespace

std::optional<std::span<std::byte>> ClientSharedBuffer::Place(std::uint64_t at, std::uint64_t size) const {
  if (at < SharedMemory::kFirstPlace || at % kArrayAlign != 0 || at > bytes.size() ||
      size > bytes.size() - at) {
    return std::nullopt;
  }
  return bytes.subspan(at, size);
}

// The memory and its charge end with the connection.
std::shared_ptr<ClientSharedBuffer> ClientSharedBuffers::Make(std::uint32_t asked_mib) {
  // The engine's thread would have to wait for a GPU's copies from and to memory that is not pinned.
  if (!device_.SharesHostMemory()) return nullptr;
  const std::uint64_t most = std::max(shared_.limit() / kShareOfOne, kLeastSharedBuffer);
  return MakeAtMost(std::uint64_t{asked_mib} << 20, most, [&](std::uint64_t bytes) {
    struct Owner {
      Reservation charge;
      std::shared_ptr<SharedMemory> memory;
    };
    std::shared_ptr<ClientSharedBuffer> made;
    auto charge = shared_.Reserve(bytes);
    if (!charge) return made;
    auto memory = SharedMemory::Make(bytes);
    if (!memory) return made;
    made = std::make_shared<ClientSharedBuffer>();
    made->bytes = memory->bytes();
    made->descriptor = memory->descriptor();
    made->owner = std::make_shared<Owner>(Owner{std::move(*charge), std::move(memory)});
    return made;
  });
}

// The device memory that stays charged after its connection. It outlives the shared buffers, which may
// outlive ClientSharedBuffers.
struct ClientSharedBuffers::Left {
  ~Left() {
    for (const Departed& departed : all) close(departed.process);
  }
  std::mutex mutex;
  std::list<Departed> all;  // guarded by mutex
};

std::shared_ptr<ClientSharedBuffers::Left> ClientSharedBuffers::MakeLeft() {
  return std::make_shared<Left>();
}

void ClientSharedBuffers::ForgetTheGone() {
  const std::lock_guard lock(left_->mutex);
  std::erase_if(left_->all, [](const Departed& departed) {
    if (!IsGone(departed.process)) return false;
    close(departed.process);
    return true;
  });
}

std::uint64_t ClientSharedBuffers::device_bytes() {
  ForgetTheGone();
  return on_device_.used();
}

std::shared_ptr<ClientSharedBuffer> ClientSharedBuffers::MakeOnDevice(std::uint32_t asked_mib, int socket) {
  // The memory, and its charge until the client's process is gone.
  struct Owner {
    Owner(std::shared_ptr<Left> goes_to, int process, Reservation of)
        : left(std::move(goes_to)), departed{process, std::move(of)} {}
    ~Owner() {
      on_device.reset();
      on_host.reset();
      const std::lock_guard lock(left->mutex);
      left->all.push_back(std::move(departed));
    }
    Owner(const Owner&) = delete;
    Owner& operator=(const Owner&) = delete;
    const std::shared_ptr<Left> left;
    Departed departed;
    std::unique_ptr<DeviceSharedBuffer> on_device;
    std::shared_ptr<SharedMemory> on_host;  // if the device uses host memory
  };
  ForgetTheGone();
  const std::uint64_t most = std::max(on_device_.limit() / kDeviceShareOfOne, kLeastSharedBuffer);
  return MakeAtMost(std::uint64_t{asked_mib} << 20, most, [&](std::uint64_t bytes) {
    std::shared_ptr<ClientSharedBuffer> made;
    auto charge = on_device_.Reserve(bytes);
    if (!charge) return made;
    const bool of_host = device_.SharesHostMemory();
    std::unique_ptr<DeviceSharedBuffer> on_device;
    std::shared_ptr<SharedMemory> on_host;
    std::unique_ptr<IngestCopy> arrivals;
    try {
      arrivals = device_.MakeIngestCopy();
      if (of_host) on_host = SharedMemory::Make(bytes, false);
      if (!of_host) on_device = device_.MakeSharedBuffer(bytes);
    } catch (const std::bad_alloc&) {
      return made;
    }
    const int process = on_device || on_host ? ProcessAt(socket) : -1;
    if (process < 0) return made;
    made = std::make_shared<ClientSharedBuffer>();
    made->bytes = on_host ? on_host->bytes() : on_device->bytes();
    made->descriptor = on_host ? on_host->descriptor() : on_device->descriptor();
    made->on_device = true;
    made->arrivals = std::move(arrivals);
    const auto owner = std::make_shared<Owner>(left_, process, std::move(*charge));
    owner->on_device = std::move(on_device);
    owner->on_host = std::move(on_host);
    made->owner = owner;
    return made;
  });
}

}  // namespace slotwise
