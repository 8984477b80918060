// AlterTable: gives a table other options: max_rows, eviction, time to live and admission.
//
// Every rank prepares its shard, and the ranks agree before anything changes. The record has the table's new
// options, and a replay alters the table as it stands there. docs/semantics.md says what becomes of rows.
// Thread-safety: as RoundContext.
#ifndef SLOTWISE_SERVER_ENGINE_OPERATIONS_ALTER_TABLE_H_
#define SLOTWISE_SERVER_ENGINE_OPERATIONS_ALTER_TABLE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "kernels/shard.h"
#include "server/engine/operations/record_bytes.h"
#include "server/engine/schedule/request.h"
#include "slotwise/status.h"
#include "slotwise/table_options.h"
#include "slotwise/types.h"

namespace slotwise {

// The outcome of an alteration: the table's options now, and whether they were others before.
struct AlteredTable {
  TableOptions options;
  bool altered = false;
};

struct AlterTableRequest {
  static constexpr Operation kOperation{16};
  static constexpr OperationClass kClass = OperationClass::kAlone;

  TableId table{0};
  TableAlteration alteration = {};
  // INVALID_ARGUMENT: the options cannot be those of a table. FAILED_PRECONDITION: the table has more rows
  // than the new max_rows. RESOURCE_EXHAUSTED or UNAVAILABLE: as for a push. In all cases nothing has
  // changed.
  std::function<void(Result<AlteredTable>)> done;
  Caller caller = {};
};

struct ReplayContext;
struct RoundContext;

namespace operations {

struct AlterTable {
  using Request = AlterTableRequest;
  struct Record {
    TableId table{0};
    TableId candidates{0};  // the id of a table of candidates that is made; 0: none is
    std::uint64_t steps = 0;
    EvictionPlace last;   // candidates up to this place were forgotten
    EvictedSums removed;  // those candidates, of all ranks; if there are none, `last` is zeros too
    std::string options;  // as text (options_text.h)
    friend bool operator==(const Record&, const Record&) = default;
  };
  static constexpr std::array kRecords{RecordKind{16}};
  static constexpr bool kTakesLong = true;

  static void Run(RoundContext& context, const Round& round);
  static std::vector<JournalPiece> Write(const Record& record);
  static Result<Record> Read(RecordKind kind, Rank rank, std::span<const std::byte> body);
  static Status Replay(ReplayContext& context, std::span<const Record> of_ranks);
};

}  // namespace operations

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_OPERATIONS_ALTER_TABLE_H_
