// Operation: the kind of a round, as the schedule sees it: a number, a class that says how requests become
// rounds, and a payload of a few bytes that the schedule does not interpret. operations/ has the rest.
// Thread-safety: plain values.
#ifndef SLOTWISE_SERVER_ENGINE_SCHEDULE_OPERATION_H_
#define SLOTWISE_SERVER_ENGINE_SCHEDULE_OPERATION_H_

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace slotwise {

// An operation's number, the same on all ranks; each operation's file defines its own.
enum class Operation : std::uint8_t {};

// Rounds of this operation sweep a table: they remove expired rows. The scheduler decides on such a round by
// itself, with no payload, when a table's steps make it due (expiry.h).
inline constexpr Operation kSweep{14};

// How requests of an operation become rounds.
enum class OperationClass : std::uint8_t {
  kAlone,     // each has a round of its own
  kShared,    // waiting requests of a table with the same payload share a round
  kLookup,    // lookups of a table and mode, with weights or without, share a round, as far as it can hold
              // them (ready_rounds.h)
  kStepPart,  // the parts of a step, of all its tables, are one round (incomplete_steps.h)
};

// The bytes that an operation adds to its request's proposal, for all ranks.
class Payload {
 public:
  static constexpr std::size_t kBytes = 16;

  Payload() = default;
  // `value` has no padding, because payloads are compared by their bytes.
  template <class T>
    requires(!std::is_same_v<T, Payload>)
  explicit Payload(const T& value) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= kBytes);
    static_assert(std::has_unique_object_representations_v<T> || std::is_floating_point_v<T>);
    std::memcpy(bytes_.data(), &value, sizeof(T));
  }

  // REQUIRES: the payload was made of a T.
  template <class T>
  T As() const {
    T value;
    std::memcpy(&value, bytes_.data(), sizeof(T));
    return value;
  }

  friend auto operator<=>(const Payload&, const Payload&) = default;

 private:
  std::array<std::byte, kBytes> bytes_{};
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_SCHEDULE_OPERATION_H_
