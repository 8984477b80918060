// ClientSharedBuffer: host or device memory that a connection shares with its client.
// ClientSharedBuffers: makes shared buffers within budgets.
//
// Host memory is freed when the connection ends, whatever the client does (wire/shared_memory.h). Device
// memory that a client has mapped cannot be taken back: it stays, and is charged, until the client's process
// ends.
// Thread-safety: plain values; ClientSharedBuffers: any thread.
#ifndef SLOTWISE_SERVER_DATA_CLIENT_SHARED_BUFFER_H_
#define SLOTWISE_SERVER_DATA_CLIENT_SHARED_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "server/engine/engine.h"

namespace slotwise {

struct ClientSharedBuffer {
  std::span<std::byte> bytes;
  int descriptor = -1;     // file descriptor of the memory
  bool on_device = false;  // `bytes` are device memory
  std::shared_ptr<void> owner;
  std::unique_ptr<IngestCopy> arrivals = nullptr;  // copies calls' arrays out of device memory

  std::uint32_t mib() const { return static_cast<std::uint32_t>(bytes.size() >> 20); }
  // Returns `size` bytes at `at`; nothing if they are not all in the buffer, or not aligned as arrays are.
  std::optional<std::span<std::byte>> Place(std::uint64_t at, std::uint64_t size) const;
  bool Has(const void* address) const {
    const auto* const at = static_cast<const std::byte*>(address);
    return !std::less<>()(at, bytes.data()) && std::less<>()(at, bytes.data() + bytes.size());
  }
};

class ClientSharedBuffers {
 public:
  // `device` outlives it, and all shared buffers.
  ClientSharedBuffers(Device& device, std::uint64_t max_shared_bytes, std::uint64_t max_device_bytes)
      : device_(device),
        shared_(max_shared_bytes),
        on_device_(max_device_bytes),
        copies_(max_device_bytes / kDeviceShareOfOne) {}

  // No connection gets more than this share of the device memory.
  static constexpr std::uint64_t kDeviceShareOfOne = 4;

  // Returns host memory of the requested size or less; null if the budget is used up or the device is a GPU.
  std::shared_ptr<ClientSharedBuffer> Make(std::uint32_t asked_mib);
  // Does the same with device memory, for the client at the other end of a Unix socket. Also returns null if
  // the system cannot tell when the client's process is gone.
  std::shared_ptr<ClientSharedBuffer> MakeOnDevice(std::uint32_t asked_mib, int socket);

  // Reserves `bytes` bytes of device memory for copies of calls' arrays; nothing if the copies take too much.
  // All clients' copies together may take as much as one client's shared buffer.
  std::optional<Reservation> ReserveCopies(std::uint64_t bytes) { return copies_.Reserve(bytes); }

  std::uint64_t shared_bytes() const { return shared_.used(); }
  std::uint64_t max_shared_bytes() const { return shared_.limit(); }
  std::uint64_t device_bytes();
  std::uint64_t max_device_bytes() const { return on_device_.limit(); }

 private:
  // Device memory that a client may still have, though its connection has ended.
  struct Departed {
    int process;  // its descriptor, to be closed
    Reservation charge;
  };
  struct Left;
  void ForgetTheGone();

  Device& device_;
  Budget shared_;
  Budget on_device_;
  Budget copies_;
  const std::shared_ptr<Left> left_ = MakeLeft();
  static std::shared_ptr<Left> MakeLeft();
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DATA_CLIENT_SHARED_BUFFER_H_
