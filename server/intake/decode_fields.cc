#include "server/intake/decode_fields.h"

#include <numeric>

#include "server/intake/finite.h"
#include "server/intake/quoted.h"

namespace slotwise {

Status CheckWhole(std::string_view field, std::size_t bytes, std::size_t element) {
  if (bytes % element == 0) return {};
  return InvalidArgument(std::string(field) + " has " + std::to_string(bytes) + " bytes, not a multiple of " +
                         std::to_string(element));
}

Status CheckFinite(std::string_view field, std::span<const float> values) {
  const auto place = FirstNonFinite(values);
  if (!place) return {};
  return InvalidArgument(std::string(field) + "[" + std::to_string(*place) + "] is " +
                         std::to_string(values[*place]) + ": must be finite");
}

BatchArray<std::uint32_t> UnitOffsets(std::size_t keys) {
  BatchArray<std::uint32_t> offsets(keys + 1);
  std::iota(offsets.data(), offsets.data() + offsets.size(), 0u);
  return offsets;
}

}  // namespace slotwise
