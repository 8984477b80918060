// A batch of bags of keys, in CSR form, and the identity of the step that a push belongs to.
//
// Bag b = sample · slots + slot owns keys[offsets[b], offsets[b + 1]). Order within a bag counts: rows are added in it.
// A key may carry a weight, which its row is multiplied by; without weights, all are 1.
// Thread-safety: plain values; a BatchView does not own what it points to.
#ifndef SLOTWISE_BATCH_H_
#define SLOTWISE_BATCH_H_

#include <cstdint>
#include <span>

#include "slotwise/status.h"
#include "slotwise/types.h"

namespace slotwise {

// TRAIN gives an absent key a row; EVAL never does, and an absent key counts as a row of zeros.
enum class LookupMode : std::uint8_t { kTrain, kEval };

// REQUIRES, everywhere past Validate(): offsets.size() = bags + 1, rising from 0 to keys.size(); weights.size() =
// keys.size(), or 0 for none.
struct BatchView {
  std::span<const Key> keys;
  std::span<const std::uint32_t> offsets;
  std::span<const float> weights = {};

  std::uint32_t bags() const { return static_cast<std::uint32_t>(offsets.size() - 1); }
};

// INVALID_ARGUMENT, with the offending place and value, unless `batch` is `samples` samples of `slots` bags each. That
// weights are finite is not looked at here.
Status Validate(const BatchView& batch, std::uint32_t samples, std::uint32_t slots);

// One optimizer step = the sum of the parts 0 .. parts - 1 that carry the same (session, number), whichever ranks
// they reach. `session` is drawn at random by a trainer (or shared by data-parallel trainers); `number` is that
// session's own count, never reused for other data.
struct StepId {
  static constexpr std::uint32_t kMaxParts = 65536;

  std::uint64_t session = 0;
  std::uint64_t number = 0;
  std::uint32_t part = 0;
  std::uint32_t parts = 1;

  friend bool operator==(const StepId&, const StepId&) = default;
};

// INVALID_ARGUMENT unless 1 <= parts <= kMaxParts and part < parts.
Status Validate(const StepId& step);

}  // namespace slotwise

#endif  // SLOTWISE_BATCH_H_
