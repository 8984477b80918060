// SetLearningRate: sets a table's learning rate from the next step on.
// Thread-safety: as RoundContext.
#ifndef SLOTWISE_SERVER_ENGINE_OPERATIONS_SET_LEARNING_RATE_H_
#define SLOTWISE_SERVER_ENGINE_OPERATIONS_SET_LEARNING_RATE_H_

#include <array>
#include <functional>

#include "server/engine/operations/definition.h"
#include "slotwise/table_options.h"

namespace slotwise {

struct SetLearningRateRequest {
  static constexpr Operation kOperation{5};
  static constexpr OperationClass kClass = OperationClass::kAlone;

  TableId table{0};
  float learning_rate = 0;  // finite, above 0
  std::function<void(Status)> done;
  Caller caller = {};

  Payload payload() const { return Payload(learning_rate); }
};

namespace operations {

struct SetLearningRate {
  using Request = SetLearningRateRequest;
  struct Record {
    TableId table{0};
    float learning_rate = 0;
    friend bool operator==(const Record&, const Record&) = default;
  };
  static constexpr std::array kRecords{RecordKind{7}};

  static void Run(RoundContext& context, const Round& round) {
    RunPlainRound<SetLearningRate>(context, round, {round.table, round.payload.As<float>()});
  }
  static void Visit(auto& fields, auto& record) {
    fields.Number(record.table);
    fields.Number(record.learning_rate);
  }
  static Status Check(const Tables& tables, const Record& record) {
    if (Status there = CheckThereIs(tables, record.table); !there.ok()) return there;
    const Status rate = ValidateLearningRate(record.learning_rate);
    return rate.ok() ? rate : DataLoss(rate.message());
  }
  static void Apply(Tables& tables, const Record& record) {
    tables.Get(record.table)->learning_rate = record.learning_rate;
  }
};

}  // namespace operations
}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_OPERATIONS_SET_LEARNING_RATE_H_
