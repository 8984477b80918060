// Bounds for the numbers that a data folder counts in. A server never comes near the bounds, and refuses a
// file with a larger number, so that no number of a folder can wrap around.
//
// Thread-safety: constants.
#ifndef SLOTWISE_SERVER_DURABILITY_BOUNDS_H_
#define SLOTWISE_SERVER_DURABILITY_BOUNDS_H_

#include <cstdint>

namespace slotwise {

inline constexpr std::uint64_t kMaxRound = std::uint64_t{1} << 62;
inline constexpr std::uint64_t kMaxRunNumber = std::uint64_t{1} << 62;  // of the journal's server instances
inline constexpr std::uint64_t kMaxEpoch = std::uint64_t{1} << 62;      // of the ledger
inline constexpr std::uint64_t kMaxSessionsBegun = std::uint64_t{1} << 62;
// An import may bring a count of 2^62, and steps follow it.
inline constexpr std::uint64_t kMaxSteps = (std::uint64_t{1} << 63) - 1;

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_BOUNDS_H_
