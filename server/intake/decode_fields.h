// Checks fields that several kinds of request share. Errors name the field and the value, as check.h says.
// Thread-safety: free functions.
#ifndef SLOTWISE_SERVER_INTAKE_DECODE_FIELDS_H_
#define SLOTWISE_SERVER_INTAKE_DECODE_FIELDS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "server/engine/schedule/request.h"
#include "server/intake/wire_array.h"
#include "slotwise/status.h"

namespace slotwise {

// Returns INVALID_ARGUMENT unless the array's bytes are a whole number of elements.
Status CheckWhole(std::string_view field, std::size_t bytes, std::size_t element);
template <class T>
Status CheckWhole(std::string_view field, const WireArray<T>& array) {
  return CheckWhole(field, array.bytes, sizeof(T));
}

// Returns INVALID_ARGUMENT, with the first offending place, if a value is NaN or infinite.
Status CheckFinite(std::string_view field, std::span<const float> values);

// Returns 0, 1, ... , keys: the offsets of bags of one key each.
BatchArray<std::uint32_t> UnitOffsets(std::size_t keys);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_INTAKE_DECODE_FIELDS_H_
