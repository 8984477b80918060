// Finds numbers that no row can have: a row's values and optimizer state are finite, and sums or means of
// squares are at least 0 (docs/semantics.md).
// Thread-safety: any thread.
#ifndef SLOTWISE_SERVER_DURABILITY_ROW_CHECKS_H_
#define SLOTWISE_SERVER_DURABILITY_ROW_CHECKS_H_

#include <cstddef>
#include <optional>
#include <span>

#include "slotwise/data_type.h"

namespace slotwise {

// Returns the index of the first number in `bytes`, of type `type`, that is NaN or infinite, or below 0 if
// `squares` is set. Takes a tenth of the time of a checksum, if the bytes are in the processor's cache.
// REQUIRES: squares are kFloat32.
std::optional<std::size_t> FirstWrongNumber(std::span<const std::byte> bytes, DataType type, bool squares);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_ROW_CHECKS_H_
