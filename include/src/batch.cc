#include "slotwise/batch.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "slotwise/status.h"

namespace slotwise {

Status Validate(const BatchView& batch, std::uint32_t samples, std::uint32_t slots) {
  const auto& offsets = batch.offsets;
  // The product has 64 bits, because samples · slots may not fit in 32.
  const std::uint64_t bags = std::uint64_t{samples} * slots;
  if (bags > 0xFFFF'FFFEu) {
    return InvalidArgument("samples is " + std::to_string(samples) + ": with " + std::to_string(slots) +
                           " slots that is " + std::to_string(bags) +
                           " bags, and a batch has at most 4294967294");
  }
  if (offsets.size() != bags + 1) {
    return InvalidArgument("offsets has " + std::to_string(offsets.size()) + " elements: must have " +
                           std::to_string(bags + 1) + " (" + std::to_string(samples) + " samples of " +
                           std::to_string(slots) + " slots, and one more)");
  }
  if (offsets.front() != 0) {
    return InvalidArgument("offsets[0] is " + std::to_string(offsets.front()) + ": must be 0");
  }
  const auto fall = std::adjacent_find(offsets.begin(), offsets.end(),
                                       [](std::uint32_t here, std::uint32_t next) { return next < here; });
  if (fall != offsets.end()) {
    const auto place = static_cast<std::size_t>(fall - offsets.begin()) + 1;
    return InvalidArgument("offsets[" + std::to_string(place) + "] is " + std::to_string(offsets[place]) +
                           ": must not be below offsets[" + std::to_string(place - 1) + "], which is " +
                           std::to_string(offsets[place - 1]));
  }
  if (offsets.back() != batch.keys.size()) {
    return InvalidArgument("offsets[" + std::to_string(bags) + "] is " + std::to_string(offsets.back()) +
                           ": must be the number of keys, " + std::to_string(batch.keys.size()));
  }
  if (!batch.weights.empty() && batch.weights.size() != batch.keys.size()) {
    return InvalidArgument("weights has " + std::to_string(batch.weights.size()) +
                           " elements: must have one for each of the " + std::to_string(batch.keys.size()) +
                           " keys, or none");
  }
  return {};
}

Status Validate(const StepId& step) {
  if (step.parts < 1 || step.parts > StepId::kMaxParts) {
    return InvalidArgument("step.parts is " + std::to_string(step.parts) + ": must be 1 to " +
                           std::to_string(StepId::kMaxParts));
  }
  if (step.part >= step.parts) {
    return InvalidArgument("step.part is " + std::to_string(step.part) +
                           ": must be below step.parts, which is " + std::to_string(step.parts));
  }
  if (step.tables < 1 || std::uint64_t{step.tables} * step.parts > StepId::kMaxParts) {
    return InvalidArgument("step.tables is " + std::to_string(step.tables) + ", and step.parts " +
                           std::to_string(step.parts) + ": their product must be 1 to " +
                           std::to_string(StepId::kMaxParts));
  }
  if (step.place >= step.tables) {
    return InvalidArgument("step.place is " + std::to_string(step.place) +
                           ": must be below step.tables, which is " + std::to_string(step.tables));
  }
  return {};
}

}  // namespace slotwise
