// RemoveRows: removes rows of a table by their scores: those that have expired, or as many as an operator
// asks for. Such a round sweeps the table.
// Thread-safety: as RoundContext.
#ifndef SLOTWISE_SERVER_ENGINE_OPERATIONS_REMOVE_ROWS_H_
#define SLOTWISE_SERVER_ENGINE_OPERATIONS_REMOVE_ROWS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/shard.h"
#include "server/engine/operations/record_bytes.h"
#include "server/engine/schedule/operation.h"
#include "server/engine/schedule/request.h"
#include "slotwise/status.h"
#include "slotwise/types.h"

namespace slotwise {

struct RemoveRequest {
  static constexpr Operation kOperation = kSweep;
  static constexpr OperationClass kClass = OperationClass::kAlone;

  enum class Which : std::uint64_t {
    kExpired,  // rows that have expired; the table has a time to live
    kAllBut,   // rows with the first places in the order of eviction, until `number` rows are left
    kBelow,    // rows with a score below `number`: a lower step, or, where scores count, a lower count
  };

  TableId table{0};
  Which which = Which::kExpired;
  std::uint64_t number = 0;
  // Called with the number of rows that went, on all ranks. FAILED_PRECONDITION: the table keeps no scores,
  // or, for kExpired, has no time to live.
  // RESOURCE_EXHAUSTED or UNAVAILABLE, with no row gone: as for a push.
  std::function<void(Result<std::uint64_t>)> done;
  Caller caller = {};

  struct Asked {
    Which which = Which::kExpired;
    std::uint64_t number = 0;
  };
  Payload payload() const { return Payload(Asked{which, number}); }
};

struct ReplayContext;
struct RoundContext;

namespace operations {

struct RemoveRows {
  using Request = RemoveRequest;
  struct Record {
    TableId table{0};
    std::uint32_t flags = 0;
    std::uint64_t steps = 0;    // the table's
    std::uint64_t seconds = 0;  // since 1970, by rank 0's clock
    EvictionPlace last;         // all rows up to this place went
    EvictedSums removed;        // of all ranks
    friend bool operator==(const Record&, const Record&) = default;
  };
  // The bits of Record::flags.
  static constexpr std::uint32_t kRemoves = 1;  // rows went; without it, `last` and `removed` are zeros
  static constexpr std::uint32_t kByStep = 2;  // the rows' places are by their steps (EvictionOrder::by_step)
  static constexpr std::uint32_t kSweeps = 4;  // the table was swept
  static constexpr std::array kRecords{RecordKind{15}};
  static constexpr bool kTakesLong = true;

  static void Run(RoundContext& context, const Round& round);
  static std::vector<JournalPiece> Write(Record record);
  static Result<Record> Read(RecordKind kind, Rank rank, std::span<const std::byte> body);
  static Status Replay(ReplayContext& context, std::span<const Record> of_ranks);

 private:
  static void Visit(auto& fields, auto& record) {
    fields.Number(record.table);
    fields.Number(record.flags);
    fields.Number(record.steps);
    fields.Number(record.seconds);
    fields.Number(record.last.score);
    fields.Number(record.last.tie);
    fields.Number(record.removed.rows);
    fields.Number(record.removed.checksum);
  }
};

}  // namespace operations

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_OPERATIONS_REMOVE_ROWS_H_
