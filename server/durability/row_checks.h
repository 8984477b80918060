// Finds numbers that no row has: a row's values and its optimizer's state are finite, and sums or means of
// squares are 0 or more (docs/semantics.md).
// Thread-safety: a free function.
#ifndef SLOTWISE_SERVER_DURABILITY_ROW_CHECKS_H_
#define SLOTWISE_SERVER_DURABILITY_ROW_CHECKS_H_

#include <cstddef>
#include <optional>
#include <span>

#include "slotwise/data_type.h"

namespace slotwise {

// Returns the place of the first of the numbers of that type in `bytes` that is NaN or infinite, or, of
// `squares`, below 0. It takes a tenth of the time that a checksum of the bytes does, if they are in the
// processor's cache. REQUIRES: squares are kFloat32.
std::optional<std::size_t> FirstWrongNumber(std::span<const std::byte> bytes, DataType type, bool squares);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_ROW_CHECKS_H_
