// DropTable: removes a table with its rows and its steps' names.
// Thread-safety: as RoundContext.
#ifndef SLOTWISE_SERVER_ENGINE_OPERATIONS_DROP_TABLE_H_
#define SLOTWISE_SERVER_ENGINE_OPERATIONS_DROP_TABLE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "server/engine/operations/definition.h"

namespace slotwise {

struct DropTableRequest {
  static constexpr Operation kOperation{3};
  static constexpr OperationClass kClass = OperationClass::kAlone;
  static constexpr bool kDropsTable = true;

  TableId table{0};
  std::function<void(Status)> done;
  Caller caller = {};
};

namespace operations {

struct DropTable {
  using Request = DropTableRequest;
  struct Record {
    TableId table{0};
    friend bool operator==(const Record&, const Record&) = default;
  };
  static constexpr std::array kRecords{RecordKind{6}};

  static void Run(RoundContext& context, const Round& round) {
    if (const Status room = context.AgreeOnRoomToRecord(); !room.ok())
      return context.AnswerMineWith<Request>(round, room);
    const Record record{round.table};
    for (std::unique_ptr<Shard>& shard : Apply(context.tables, record))
      context.checkpointing.Keep(std::move(shard));
    context.evicted.Forget(record.table);
    context.Record(kRecords.front(), [&] { return WrittenRecord<DropTable>(record); });
    std::array<std::uint64_t, 1> all_done{0};
    context.collective.AllReduceSum(all_done);
    context.AnswerMineOnceRecorded<Request>(round, Status());
  }
  static void Visit(auto& fields, auto& record) { fields.Number(record.table); }
  static Status Check(const Tables& tables, const Record& record) {
    return CheckThereIs(tables, record.table);
  }
  // Returns the shards whose rows a snapshot may still have to read.
  static std::vector<std::unique_ptr<Shard>> Apply(Tables& tables, const Record& record) {
    return tables.Remove(record.table);
  }
};

}  // namespace operations
}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_OPERATIONS_DROP_TABLE_H_
