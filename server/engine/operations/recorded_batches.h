// RecordedBatches: what a journal keeps of a round on batches, so that the round's outcome can be applied
// again and nothing has to be decided again.
//
// What all ranks share (tables, the step's name, who brought which part) is in every rank's record; arrays
// are in the record of the rank that they came to, as they came. So the records of all ranks together are the
// round, whatever number of ranks applies it again.
// Thread-safety: plain values.
#ifndef SLOTWISE_SERVER_ENGINE_OPERATIONS_RECORDED_BATCHES_H_
#define SLOTWISE_SERVER_ENGINE_OPERATIONS_RECORDED_BATCHES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "server/durability/journal.h"
#include "server/engine/batch_part.h"
#include "server/engine/schedule/round.h"
#include "slotwise/batch.h"
#include "slotwise/data_type.h"
#include "slotwise/status.h"
#include "slotwise/types.h"

namespace slotwise {

// A request's share of a round, as recorded.
struct RecordedPart {
  std::uint32_t rank = 0;  // it came to
  std::uint32_t part = 0;  // its place among the parts of its step
  std::uint32_t samples = 0;
  std::uint32_t keys = 0;
  std::uint32_t body = 0;
  std::uint32_t weighted = 0;  // 1: it has weights

  friend bool operator==(const RecordedPart&, const RecordedPart&) = default;
};

struct RecordedShare {
  TableId table{0};
  std::uint64_t steps = 0;                  // the table's count of steps, after the round
  std::optional<float> learning_rate = {};  // of a push: of its step alone
  std::vector<RecordedPart> parts;          // in the round's order

  friend bool operator==(const RecordedShare&, const RecordedShare&) = default;
};

// The arrays of a part that came to the rank whose record this is. They lie in the record's bytes.
struct RecordedArrays {
  std::span<const Key> keys;
  std::span<const std::uint32_t> offsets;  // from 0; a bag more
  std::span<const float> weights;
  std::span<const std::byte> values;
  DataType value_type = DataType::kFloat32;
};

struct RecordedBatches {
  StepId step;                         // of a push
  bool with_state = false;             // of an import
  std::vector<RecordedShare> shares;   // by table, in order of place
  std::vector<RecordedArrays> arrays;  // of the shares' parts that came to this rank, in their order

  // Whether both say the same of the round, whichever ranks' they are.
  friend bool operator==(const RecordedBatches& one, const RecordedBatches& other) {
    return one.step == other.step && one.with_state == other.with_state && one.shares == other.shares;
  }
};

// Whether some table of a step has a learning rate of its own for it, which is written then.
bool BringsRates(const Round& round);

// Returns what is written of a round on batches. `steps` are the tables' counts of steps after it.
// `arrays_of` returns the arrays of a part that came to `me`, in host memory.
std::vector<JournalPiece> RecordBatches(
    const Round& round, Rank me, std::span<const std::uint64_t> steps, bool with_state,
    const std::function<std::shared_ptr<const BatchPart>(const Ticket&)>& arrays_of);

// Returns at least how many bytes RecordBatches will write.
std::uint64_t RecordBytes(const Round& round, Rank me,
                          const std::function<std::uint64_t(const Ticket&)>& array_bytes_of);

// Reads a record of rank `me`. Its spans point into `body`, which begins at a multiple of 8.
// INVALID_ARGUMENT, with the place, if the bytes are no such record.
Result<RecordedBatches> ReadBatches(Rank me, std::span<const std::byte> body, bool with_rates = false);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_OPERATIONS_RECORDED_BATCHES_H_
