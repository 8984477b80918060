// ReadRows: returns the rows of some keys that one rank holds. The other ranks take no part in the round.
// Thread-safety: as RoundContext.
#ifndef SLOTWISE_SERVER_ENGINE_OPERATIONS_READ_ROWS_H_
#define SLOTWISE_SERVER_ENGINE_OPERATIONS_READ_ROWS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "server/engine/operations/alone.h"
#include "server/engine/operations/definition.h"

namespace slotwise {

// Asks for the rows of `keys`, as far as this rank holds them.
struct ReadRowsRequest {
  static constexpr Operation kOperation{9};
  static constexpr OperationClass kClass = OperationClass::kAlone;

  TableId table{0};
  std::vector<Key> keys;
  std::function<void(Result<RowRecords>)> done;
  Reservation reservation = {};
  Caller caller = {};
  // The table's generation as the caller knows it; 0: any. UNAVAILABLE: a checkpoint was loaded since.
  std::uint64_t generation = 0;
};

namespace operations {

struct ReadRows {
  using Request = ReadRowsRequest;

  static void Run(RoundContext& context, const Round& round) {
    Shard& shard = *context.tables.Get(round.table)->shard;
    context.AnswerMine<Request>(round, [&](Request& request) {
      if (request.caller.gone()) return request.done(CallerIsGone());
      request.done(OrNoMemory([&] { return shard.Read(request.keys); }, "no memory for the rows"));
    });
  }
};

}  // namespace operations

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_OPERATIONS_READ_ROWS_H_
