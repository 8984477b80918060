// SharedBuffer is the memory that a client's connection shares with a server on its host, with the
// allocations of calls. A call has one for its arrays and one for its values, from before it is sent until it
// is answered, even if it was given up, because the server still writes a late answer.
// Thread-safety: safe from any thread.
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

  // Copies a call's body into the shared buffer, and allocates `value_bytes` bytes for values. Returns the
  // allocations; if there is no room, returns nothing and does nothing.
  using Body = std::vector<std::span<const std::byte>>;
  std::optional<v1::Allocations> Put(std::uint64_t call, const Body& body, std::uint64_t value_bytes);
  // Copies a call's values out of the shared buffer. Returns false if the sizes differ, or the server has
  // taken the memory back.
  bool Get(std::uint64_t call, const std::vector<std::span<std::byte>>& values) const;
  // Frees the allocations of an answered call. Does nothing if the call has none.
  void Free(std::uint64_t call);

  // Returns the sum of the bytes of all allocations.
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
