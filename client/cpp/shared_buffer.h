// SharedBuffer: the memory that a client's connection shares with a server on its host, and which call has
// which allocation. A call has one for its arrays and one for its values, from before it is sent until it is
// answered: an answer that comes late is written all the same. Thread-safety: safe from any thread.
#ifndef SLOTWISE_CLIENT_CPP_SHARED_BUFFER_H_
#define SLOTWISE_CLIENT_CPP_SHARED_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "client/cpp/allocator.h"
#include "slotwise/v1/data.pb.h"
#include "wire/shared_memory.h"

namespace slotwise::client {

class SharedBuffer {
 public:
  explicit SharedBuffer(std::shared_ptr<SharedMemory> memory);

  // Copies a call's body into the shared buffer, and finds room for so many bytes of values. Returns the
  // allocations; nothing, and does nothing, if there is no room.
  using Body = std::vector<std::span<const std::byte>>;
  std::optional<v1::Allocations> Put(std::uint64_t call, const Body& body, std::uint64_t value_bytes);
  // Copies a call's values out of the shared buffer. Returns whether that is what the server wrote: so many
  // bytes are there, and the server still has the memory.
  bool Get(std::uint64_t call, const std::vector<std::span<std::byte>>& values) const;
  // A call is answered: its allocations are free. Does nothing if it has none.
  void Free(std::uint64_t call);

  // Returns the bytes of all allocations that calls have.
  std::uint64_t used() const;

 private:
  const std::shared_ptr<SharedMemory> memory_;
  mutable std::mutex mutex_;
  // Guarded by mutex_:
  Allocator free_;
  std::unordered_map<std::uint64_t, Allocator::OfCall> calls_;
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_SHARED_BUFFER_H_
