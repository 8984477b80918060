// ListKeys: returns the keys that one rank holds, in no order. The other ranks take no part in the round.
// Thread-safety: as RoundContext.
#ifndef SLOTWISE_SERVER_ENGINE_OPERATIONS_LIST_KEYS_H_
#define SLOTWISE_SERVER_ENGINE_OPERATIONS_LIST_KEYS_H_

#include <cstddef>
#include <functional>
#include <vector>

#include "server/engine/operations/alone.h"
#include "server/engine/operations/definition.h"

namespace slotwise {

struct ListKeysRequest {
  static constexpr Operation kOperation{8};
  static constexpr OperationClass kClass = OperationClass::kAlone;

  TableId table{0};
  std::function<void(Result<std::vector<Key>>)> done;
  // Reserves room for a list of `keys` keys before it is made; an error is the answer. Null: there is room.
  std::function<Status(std::size_t keys)> room = nullptr;
  Caller caller = {};
};

namespace operations {

struct ListKeys {
  using Request = ListKeysRequest;
  static constexpr bool kTakesLong = true;

  static void Run(RoundContext& context, const Round& round) {
    Shard& shard = *context.tables.Get(round.table)->shard;
    context.AnswerMine<Request>(round, [&](Request& request) {
      if (request.caller.gone()) return request.done(CallerIsGone());
      if (request.room) {
        if (Status room = request.room(shard.Usage().rows); !room.ok()) return request.done(room);
      }
      request.done(OrNoMemory([&] { return shard.Keys(); }, "no memory for a list of the rank's keys"));
    });
  }
};

}  // namespace operations

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_OPERATIONS_LIST_KEYS_H_
