// CreateTable: makes a table, or returns the existing table of that name if its options are the same, or were
// when it was made.
// Thread-safety: as RoundContext.
#ifndef SLOTWISE_SERVER_ENGINE_OPERATIONS_CREATE_TABLE_H_
#define SLOTWISE_SERVER_ENGINE_OPERATIONS_CREATE_TABLE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "server/engine/operations/record_bytes.h"
#include "server/engine/schedule/request.h"
#include "slotwise/status.h"
#include "slotwise/table_options.h"
#include "slotwise/types.h"

namespace slotwise {

struct CreatedTable {
  TableId id{0};
  bool created = false;       // false: it existed, made with the same options or altered to them
  TableOptions options = {};  // in force: those that an existing table was altered to
};

struct CreateTableRequest {
  static constexpr Operation kOperation{2};
  static constexpr OperationClass kClass = OperationClass::kAlone;

  TableOptions options;
  std::function<void(Result<CreatedTable>)> done;
  Caller caller = {};
};

struct ReplayContext;
struct RoundContext;

namespace operations {

struct CreateTable {
  using Request = CreateTableRequest;
  struct Record {
    TableId table{0};
    std::uint64_t generation = 0;
    TableOptions options;
    friend bool operator==(const Record&, const Record&) = default;
  };
  static constexpr RecordKind kFlat{5};  // has another text of the options (options_text.h)
  static constexpr std::array kRecords{RecordKind{11}, kFlat};
  static constexpr bool kTakesLong = true;

  static void Run(RoundContext& context, const Round& round);
  static std::vector<JournalPiece> Write(const Record& record);
  static Result<Record> Read(RecordKind kind, Rank rank, std::span<const std::byte> body);
  static Status Replay(ReplayContext& context, std::span<const Record> of_ranks);
};

}  // namespace operations

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_OPERATIONS_CREATE_TABLE_H_
