// RoundRecord: what a journal keeps of a round that changed state, so that the round's outcome can be applied
// again and nothing has to be decided again.
//
// Each rank records every such round. What all ranks share (operation, tables, the step's name, who brought
// which part) is in every rank's record; arrays are in the record of the rank that they came to, as they
// came. So the records of all ranks together are the round, whatever number of ranks applies it again.
// Integers are little-endian; every array begins at a multiple of 8 bytes.
// Thread-safety: plain values.
#ifndef SLOTWISE_SERVER_ENGINE_ROUND_RECORD_H_
#define SLOTWISE_SERVER_ENGINE_ROUND_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "server/durability/journal.h"
#include "server/durability/manifest.h"
#include "server/engine/batch_part.h"
#include "server/engine/round.h"
#include "slotwise/batch.h"
#include "slotwise/data_type.h"
#include "slotwise/status.h"
#include "slotwise/table_options.h"
#include "slotwise/types.h"

namespace slotwise {

// Values are written to disk: none is ever given another meaning.
enum class RecordKind : std::uint32_t {
  kPush = 1,
  kNewKeys = 2,  // of TRAIN lookups
  kImport = 3,
  kErase = 4,
  kCreateTable = 5,
  kDropTable = 6,
  kSetLearningRate = 7,
  kLoadCheckpoint = 8,
  kPushAtRates = 9,  // a push of which some table has a learning rate of its own
  kLoadTables = 10,  // a load of some of a checkpoint's tables
};

constexpr bool IsPush(RecordKind kind) {
  return kind == RecordKind::kPush || kind == RecordKind::kPushAtRates;
}

constexpr bool IsLoad(RecordKind kind) {
  return kind == RecordKind::kLoadCheckpoint || kind == RecordKind::kLoadTables;
}

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

struct RecordedKeys {
  TableId table{0};
  std::span<const Key> keys;  // that the rank's shard gave rows
};

struct RoundRecord {
  RecordKind kind = RecordKind::kPush;
  StepId step;                         // of a push
  bool with_state = false;             // of an import
  std::vector<RecordedShare> shares;   // of pushes, imports and erases; by table, in order of place
  std::vector<RecordedArrays> arrays;  // of the shares' parts that came to this rank, in their order
  std::vector<RecordedKeys> new_keys;  // of kNewKeys
  TableId table{0};                    // of what concerns one table as a whole
  TableOptions options;                // of kCreateTable
  std::uint64_t lineage = 0;           // of kCreateTable; of a load, what lineages are drawn from
  CheckpointName checkpoint;           // of a load
  std::vector<TableId> loaded;         // of kLoadTables
  float learning_rate = 0;             // of kSetLearningRate
};

// Returns as what a push is recorded.
RecordKind KindOfPush(const Round& round);

// Returns what is written of a round on batches: a push, an import or an erase. `steps` are the tables'
// counts of steps after it. `arrays_of` returns the arrays of a part that came to `me`, in host memory.
std::vector<JournalPiece> RecordBatches(
    const Round& round, Rank me, std::span<const std::uint64_t> steps,
    const std::function<std::shared_ptr<const BatchPart>(const Ticket&)>& arrays_of);

// Returns at least how many bytes RecordBatches will write.
std::uint64_t RecordBytes(const Round& round, Rank me,
                          const std::function<std::uint64_t(const Ticket&)>& array_bytes_of);

// Returns what is written of the keys that a rank's shards gave rows.
struct NewKeys {
  TableId table{0};
  std::vector<Key> keys;
};
std::vector<JournalPiece> RecordNewKeys(std::vector<NewKeys> tables);

std::vector<JournalPiece> RecordCreateTable(TableId table, const TableOptions& options,
                                            std::uint64_t lineage);
std::vector<JournalPiece> RecordDropTable(TableId table);
std::vector<JournalPiece> RecordSetLearningRate(TableId table, float learning_rate);
// Of kLoadTables, if `tables` are some; of kLoadCheckpoint, if they are none.
std::vector<JournalPiece> RecordLoadCheckpoint(const CheckpointName& checkpoint, std::uint64_t lineages,
                                               std::span<const TableId> tables = {});

// Reads a record of rank `me`. Its spans point into `bytes`, which begin at a multiple of 8.
// INVALID_ARGUMENT, with the place, if the bytes are no record of that kind.
Result<RoundRecord> ReadRecord(RecordKind kind, Rank me, std::span<const std::byte> bytes);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_ROUND_RECORD_H_
