// Places: which bytes of an arena are free.
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_CLIENT_CPP_PLACES_H_
#define SLOTWISE_CLIENT_CPP_PLACES_H_

#include <cstdint>
#include <map>
#include <optional>

namespace slotwise::client {

class Places {
 public:
  struct Place {
    std::uint64_t at = 0;
    std::uint64_t bytes = 0;  // a multiple of kArrayAlign
  };

  // Of an arena of `size` bytes, of which those before `first` are not for places.
  Places(std::uint64_t first, std::uint64_t size);

  // Returns a place for so many bytes, or nothing if there is no room.
  std::optional<Place> Take(std::uint64_t bytes);
  void GiveBack(const Place& place);

  // Returns the bytes of all places that were taken.
  std::uint64_t used() const { return used_; }

 private:
  std::map<std::uint64_t, std::uint64_t> free_;  // where, and how many bytes; none adjoins another
  std::uint64_t used_ = 0;
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_PLACES_H_
