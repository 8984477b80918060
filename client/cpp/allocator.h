// Allocator knows which bytes of a shared buffer are free.
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_CLIENT_CPP_ALLOCATOR_H_
#define SLOTWISE_CLIENT_CPP_ALLOCATOR_H_

#include <cstdint>
#include <map>
#include <optional>

namespace slotwise::client {

class Allocator {
 public:
  struct Allocation {
    std::uint64_t at = 0;
    std::uint64_t bytes = 0;  // a multiple of kArrayAlign
  };

  // The shared buffer has `size` bytes; those before `first` are never allocated.
  Allocator(std::uint64_t first, std::uint64_t size);

  // The allocations of one call: one for its arrays, and one for its values.
  struct OfCall {
    Allocation body;
    Allocation values;
  };

  // Returns an allocation of `bytes` bytes, or nothing if there is no room.
  std::optional<Allocation> Take(std::uint64_t bytes);
  void GiveBack(const Allocation& allocation);
  // These two take and give back both allocations of a call.
  std::optional<OfCall> TakeBoth(std::uint64_t body_bytes, std::uint64_t value_bytes);
  void GiveBack(const OfCall& allocations);

  // Returns the sum of the bytes of all allocations in use.
  std::uint64_t used() const { return used_; }

 private:
  std::map<std::uint64_t, std::uint64_t> free_;  // place -> bytes; no two entries adjoin
  std::uint64_t used_ = 0;
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_ALLOCATOR_H_
