// This header defines a batch of bags of keys, in CSR form, and the identity of the step that a push belongs
// to.
//
// Bag b = sample · slots + slot owns keys[offsets[b], offsets[b + 1]). The order of keys within a bag
// matters, because rows are added in that order. A key may carry a weight, and its row is multiplied by the
// weight; without weights, every weight is 1.
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

// REQUIRES, after Validate(): offsets.size() = bags + 1, and offsets rise from 0 to keys.size().
// weights.size() = keys.size(), or 0 for a batch without weights.
struct BatchView {
  std::span<const Key> keys;
  std::span<const std::uint32_t> offsets;
  std::span<const float> weights = {};

  std::uint32_t bags() const { return static_cast<std::uint32_t>(offsets.size() - 1); }
};

// Returns INVALID_ARGUMENT, with the offending place and value, unless `batch` is `samples` samples of
// `slots` bags each. Does not check that weights are finite.
Status Validate(const BatchView& batch, std::uint32_t samples, std::uint32_t slots);

// One optimizer step is the sum of the parts 0 .. parts - 1 that carry the same (session, number), whichever
// ranks the parts reach. A trainer draws `session` at random; data-parallel trainers share one. `number` is
// the session's own count, and is never reused for other data. `epoch` is the server's epoch when the session
// was drawn: a server that has forgotten sessions refuses an unknown session, unless the epoch shows that the
// session is younger than the forgotten ones.
//
// A step may change several tables: it has parts 0 .. parts - 1 for each of `tables` tables, and `place` says
// for which table a part is. The step is applied to all of the tables, or to none.
struct StepId {
  static constexpr std::uint32_t kMaxParts = 65536;

  std::uint64_t session = 0;
  std::uint64_t number = 0;
  std::uint32_t part = 0;
  std::uint32_t parts = 1;
  std::uint64_t epoch = 0;  // 0: unknown
  std::uint32_t place = 0;
  std::uint32_t tables = 1;

  friend bool operator==(const StepId&, const StepId&) = default;
};

// Returns INVALID_ARGUMENT unless part < parts, place < tables, and a step has 1 to kMaxParts parts of all
// its tables together.
Status Validate(const StepId& step);

}  // namespace slotwise

#endif  // SLOTWISE_BATCH_H_
