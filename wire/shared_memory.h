// SharedMemory is the memory of a shared buffer, which a server shares with one client on its host, and which
// it hands over by a Unix socket.
//
// The server makes the memory and seals its size, because a process that touches memory which another process
// has cut off would be killed. Both ends may write everywhere at any time, so each copies data before
// checking it. Places begin at kFirstPlace; before it is a word that is not 0 while the server has the
// memory. Thread-safety: any thread, on different bytes.
#ifndef SLOTWISE_WIRE_SHARED_MEMORY_H_
#define SLOTWISE_WIRE_SHARED_MEMORY_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "wire/array_align.h"

namespace slotwise {

class SharedMemory {
 public:
  // Makes `bytes` bytes of zeros, which take memory as they are touched. Null: the system has no memory. If
  // not `taken_back`, the client keeps the memory as long as it is mapped, as with a device's memory.
  static std::shared_ptr<SharedMemory> Make(std::uint64_t bytes, bool taken_back = true);
  // Maps memory from a server and takes over the descriptor. Null: the memory is not sealed, does not have
  // `bytes` bytes, or cannot be mapped.
  static std::shared_ptr<SharedMemory> Open(int descriptor, std::uint64_t bytes);
  // In the server, returns memory that is taken back to the system, even while the client has it mapped.
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  static constexpr std::uint64_t kFirstPlace = kArrayAlign;

  std::span<std::byte> bytes() const { return {at_, size_}; }
  // Returns the bytes of a place; nothing if they are out of bounds, or not aligned as arrays are.
  std::optional<std::span<std::byte>> Place(std::uint64_t at, std::uint64_t bytes) const;
  bool Has(const void* address) const {
    const auto* const at = static_cast<const std::byte*>(address);
    return !std::less<>()(at, at_) && std::less<>()(at, at_ + size_);
  }
  // Returns whether the server had the memory during all copies until now.
  bool alive() const;
  int descriptor() const { return descriptor_; }

 private:
  SharedMemory(int descriptor, std::byte* at, std::size_t size, bool takes_back)
      : descriptor_(descriptor), at_(at), size_(size), takes_back_(takes_back) {}
  static std::shared_ptr<SharedMemory> Map(int descriptor, std::uint64_t bytes, bool takes_back);

  const int descriptor_;
  std::byte* const at_;
  const std::size_t size_;
  const bool takes_back_;
};

// Sends bytes over a Unix socket, with a descriptor beside the first byte. Never blocks. Returns the number
// of bytes sent; -1, with errno, if it fails.
ssize_t SendWithDescriptor(int socket, std::span<const std::byte> bytes, int descriptor);

// Receives bytes from a Unix socket, and at most one descriptor beside them, which the caller then owns; -1:
// there was none. Never blocks. Returns the number of bytes, 0 at the end; -1, with errno, if it fails.
ssize_t ReceiveWithDescriptor(int socket, std::span<std::byte> bytes, int& descriptor);

}  // namespace slotwise

#endif  // SLOTWISE_WIRE_SHARED_MEMORY_H_
