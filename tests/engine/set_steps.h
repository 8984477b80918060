// SetSteps sets a table's number of steps. No server has this operation. It shows that a journaled operation
// takes this one file (CONTRIBUTING.md, To add an operation).
// Thread-safety: as RoundContext.
#ifndef SLOTWISE_TESTS_ENGINE_SET_STEPS_H_
#define SLOTWISE_TESTS_ENGINE_SET_STEPS_H_

#include <array>
#include <cstdint>
#include <functional>

#include "server/engine/operations/definition.h"

namespace slotwise {

struct SetStepsRequest {
  static constexpr Operation kOperation{200};
  static constexpr OperationClass kClass = OperationClass::kAlone;

  TableId table{0};
  std::uint64_t steps = 0;
  std::function<void(Status)> done;
  Caller caller = {};

  Payload payload() const { return Payload(steps); }
};

namespace operations {

struct SetSteps {
  using Request = SetStepsRequest;
  struct Record {
    TableId table{0};
    std::uint64_t steps = 0;
    friend bool operator==(const Record&, const Record&) = default;
  };
  static constexpr std::array kRecords{RecordKind{1000}};

  static void Run(RoundContext& context, const Round& round) {
    RunPlainRound<SetSteps>(context, round, {round.table, round.payload.As<std::uint64_t>()});
  }
  static void Visit(auto& fields, auto& record) {
    fields.Number(record.table);
    fields.Number(record.steps);
  }
  static Status Check(const Tables& tables, const Record& record) {
    return CheckThereIs(tables, record.table);
  }
  static void Apply(Tables& tables, const Record& record) { tables.Get(record.table)->steps = record.steps; }
};

}  // namespace operations
}  // namespace slotwise

#endif  // SLOTWISE_TESTS_ENGINE_SET_STEPS_H_
