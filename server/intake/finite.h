// Finds NaN and infinity in an array at the speed of memory.
// Thread-safety: a free function.
#ifndef SLOTWISE_SERVER_INTAKE_FINITE_H_
#define SLOTWISE_SERVER_INTAKE_FINITE_H_

#include <cstddef>
#include <optional>
#include <span>

#include "server/intake/payload_hash.h"
#include "server/intake/sampled_squares.h"
#include "slotwise/data_type.h"

namespace slotwise {

// Returns the index of the first of `size` numbers of `type` that is NaN or infinite. If there is none, adds
// all numbers to `hash` and to `squares`, if given, while they are in the processor's cache.
std::optional<std::size_t> FirstNonFinite(const void* numbers, DataType type, std::size_t size,
                                          ArrayHash* hash = nullptr, SampledSquares* squares = nullptr);

inline std::optional<std::size_t> FirstNonFinite(std::span<const float> values) {
  return FirstNonFinite(values.data(), DataType::kFloat32, values.size());
}

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_INTAKE_FINITE_H_
