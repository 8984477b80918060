// Arena: the memory that a client's connection shares with a server on its host, and who has which of its
// places. A call has one for its arrays and one for its values, from before it is sent until it is answered:
// an answer that comes late is written all the same.
// Thread-safety: safe from any thread.
#ifndef SLOTWISE_CLIENT_CPP_ARENA_H_
#define SLOTWISE_CLIENT_CPP_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "client/cpp/places.h"
#include "slotwise/v1/data.pb.h"
#include "wire/shared_memory.h"

namespace slotwise::client {

class Arena {
 public:
  explicit Arena(std::shared_ptr<SharedMemory> memory);

  // Copies a call's body into the arena, and finds room for so many bytes of values. Returns the places;
  // nothing, and does nothing, if there is no room.
  using Body = std::vector<std::span<const std::byte>>;
  std::optional<v1::ArenaPlaces> Put(std::uint64_t call, const Body& body, std::uint64_t value_bytes);
  // Copies a call's values out of the arena. Returns whether that is what the server wrote: so many bytes are
  // there, and the server still has the memory.
  bool Get(std::uint64_t call, const std::vector<std::span<std::byte>>& values) const;
  // A call is answered: its places are free. Does nothing if it has none.
  void Free(std::uint64_t call);

  // Returns the bytes of all places that calls have.
  std::uint64_t used() const;

 private:
  const std::shared_ptr<SharedMemory> memory_;
  mutable std::mutex mutex_;
  // Guarded by mutex_:
  Places free_;
  std::unordered_map<std::uint64_t, Places::OfCall> calls_;
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_ARENA_H_
