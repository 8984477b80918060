// LoadCheckpoint: replaces the server's tables by a checkpoint's, or only some of them.
// Thread-safety: as RoundContext.
#ifndef SLOTWISE_SERVER_ENGINE_OPERATIONS_LOAD_CHECKPOINT_H_
#define SLOTWISE_SERVER_ENGINE_OPERATIONS_LOAD_CHECKPOINT_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "server/durability/manifest.h"
#include "server/engine/operations/checkpoint_requests.h"
#include "server/engine/operations/record_bytes.h"
#include "slotwise/status.h"
#include "slotwise/table_options.h"
#include "slotwise/types.h"

namespace slotwise {

struct ReplayContext;
struct RoundContext;

namespace operations {

struct LoadCheckpoint {
  using Request = LoadCheckpointRequest;
  struct Record {
    std::uint64_t generations = 0;  // the number that tables' generations derive from
    CheckpointName checkpoint;
    bool some = false;  // only these of its tables:
    std::vector<TableId> tables;
    std::optional<RowType> rows_as;  // what the tables keep rows as, if not what the checkpoint's did
    friend bool operator==(const Record&, const Record&) = default;
  };
  static constexpr RecordKind kAll{8};
  static constexpr RecordKind kSome{10};
  static constexpr RecordKind kAsOtherRows{17};  // of all tables, or some
  static constexpr std::array kRecords{kAll, kSome, kAsOtherRows};
  static RecordKind KindOf(const Record& record);
  static constexpr bool kTakesLong = true;

  static void Run(RoundContext& context, const Round& round);
  static std::vector<JournalPiece> Write(const Record& record);
  static Result<Record> Read(RecordKind kind, Rank rank, std::span<const std::byte> body);
  static Status Replay(ReplayContext& context, std::span<const Record> of_ranks);
};

}  // namespace operations

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_OPERATIONS_LOAD_CHECKPOINT_H_
