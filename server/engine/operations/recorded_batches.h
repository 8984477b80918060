// RecordedBatches: a journal's record of a round on batches. A replay of the round needs no new decision.
//
// Every rank's record has the fields that the ranks share: tables, the step's name, which rank brought which
// part. Arrays are only in the record of the rank that received them, unchanged. So the records of all ranks
// together are the round, and any number of ranks can replay it.
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
#include "server/engine/operations/recorded_evictions.h"
#include "server/engine/schedule/round.h"
#include "slotwise/batch.h"
#include "slotwise/data_type.h"
#include "slotwise/status.h"
#include "slotwise/types.h"

namespace slotwise {

// A request's recorded share of a round.
struct RecordedPart {
  std::uint32_t rank = 0;  // the rank that received it
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
  std::optional<float> learning_rate = {};  // a push's, for its step alone
  std::vector<RecordedPart> parts;          // in the round's order

  friend bool operator==(const RecordedShare&, const RecordedShare&) = default;
};

// The arrays of a part that the recording rank received. They lie in the record's bytes.
struct RecordedArrays {
  std::span<const Key> keys;
  std::span<const std::uint32_t> offsets;  // bags + 1, from 0
  std::span<const float> weights;
  std::span<const std::byte> values;
  DataType value_type = DataType::kFloat32;
};

struct RecordedBatches {
  std::vector<RecordedEviction> evictions;  // that came before
  StepId step;                              // of a push
  bool with_state = false;                  // of an import
  std::vector<RecordedShare> shares;        // by table, in order of place
  std::vector<RecordedArrays> arrays;       // of the parts that came to this rank, in order

  // Returns whether the fields that the ranks share are equal.
  friend bool operator==(const RecordedBatches& one, const RecordedBatches& other) {
    return one.evictions == other.evictions && one.step == other.step && one.with_state == other.with_state &&
           one.shares == other.shares;
  }
};

// Returns whether the step has its own learning rate for some table, so that the record has rates.
bool BringsRates(const Round& round);

// Has what a record holds beside a round's batches.
struct RecordedBeside {
  bool with_state = false;                   // of an import
  bool with_rates = false;                   // of a push: each share says whether it has a rate, and which
  std::span<const Eviction> evictions = {};  // that came before; with some, the record begins with them
};

// Returns the record of a round on batches. `steps` are the tables' counts of steps after the round.
// `arrays_of` returns the arrays of a part that came to `me`, in host memory.
std::vector<JournalPiece> RecordBatches(
    const Round& round, Rank me, std::span<const std::uint64_t> steps, const RecordedBeside& beside,
    const std::function<std::shared_ptr<const BatchPart>(const Ticket&)>& arrays_of);

// Returns an upper bound of the bytes that RecordBatches writes.
std::uint64_t RecordBytes(const Round& round, Rank me,
                          const std::function<std::uint64_t(const Ticket&)>& array_bytes_of);

// Reads a record of rank `me`. Its spans point into `body`, which begins at a multiple of 8.
// INVALID_ARGUMENT, with the place, if the bytes are no such record.
Result<RecordedBatches> ReadBatches(Rank me, std::span<const std::byte> body, bool with_rates = false,
                                    bool with_evictions = false);

// Evicts again what the rounds' records say. See ReplayEvictions.
Status ReplayEvictionsOf(ReplayContext& context, std::span<const RecordedBatches> of_ranks);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_OPERATIONS_RECORDED_BATCHES_H_
