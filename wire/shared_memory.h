// SharedMemory: a shared buffer, memory that a server shares with one client on its host, and how it is
// handed over a Unix socket.
//
// The server makes it, and seals it, so that no process can make it smaller and with that end one that
// touches what is gone. Both ends may write everywhere at any time, so each copies what it reads before it
// looks at it. Places begin at kFirstPlace: before it is a word that is not 0 while the server has the
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
  // Makes `bytes` of zeros, which take memory as they are touched. Null: the system has no such memory. Not
  // `taken_back`: the memory is the client's as long as it has it mapped, as a device's would be.
  static std::shared_ptr<SharedMemory> Make(std::uint64_t bytes, bool taken_back = true);
  // Maps what came from a server, and takes the descriptor over. Null: it is not sealed, has other than
  // `bytes`, or cannot be mapped.
  static std::shared_ptr<SharedMemory> Open(int descriptor, std::uint64_t bytes);
  // The server gives memory that is taken back to the system, even while the client has it mapped.
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  static constexpr std::uint64_t kFirstPlace = kArrayAlign;

  std::span<std::byte> bytes() const { return {at_, size_}; }
  // The bytes at a place; nothing if they are not all of places, or are not aligned as arrays are.
  std::optional<std::span<std::byte>> Place(std::uint64_t at, std::uint64_t bytes) const;
  bool Has(const void* address) const {
    const auto* const at = static_cast<const std::byte*>(address);
    return !std::less<>()(at, at_) && std::less<>()(at, at_ + size_);
  }
  // Returns whether all that was copied from the memory until now was there.
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

// Sends bytes over a Unix socket, with a descriptor beside the first of them. Returns how many went, or -1,
// and errno says why. Does not wait.
ssize_t SendWithDescriptor(int socket, std::span<const std::byte> bytes, int descriptor);

// Receives bytes of a Unix socket, and at most one descriptor that came beside them: it belongs to the caller
// then, and is -1 if there was none. Returns how many came, 0 at the end, or -1, and errno says why. Does not
// wait.
ssize_t ReceiveWithDescriptor(int socket, std::span<std::byte> bytes, int& descriptor);

}  // namespace slotwise

#endif  // SLOTWISE_WIRE_SHARED_MEMORY_H_
