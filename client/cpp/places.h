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

  // Hands out places of an arena of `size` bytes, of which those before `first` are none.
  Places(std::uint64_t first, std::uint64_t size);

  // The places of a call: of its arrays, and of its values.
  struct OfCall {
    Place body;
    Place values;
  };

  // Returns a place for so many bytes, or nothing if there is no room.
  std::optional<Place> Take(std::uint64_t bytes);
  void GiveBack(const Place& place);
  // The same of both places of a call.
  std::optional<OfCall> TakeBoth(std::uint64_t body_bytes, std::uint64_t value_bytes);
  void GiveBack(const OfCall& places);

  // Returns the bytes of all places that were taken.
  std::uint64_t used() const { return used_; }

 private:
  std::map<std::uint64_t, std::uint64_t> free_;  // where, and how many bytes; none adjoins another
  std::uint64_t used_ = 0;
};

}  // namespace slotwise::client

#endif  // SLOTWISE_CLIENT_CPP_PLACES_H_
