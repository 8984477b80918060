// DescribeSession: returns the ledger's entries of a session.
// Thread-safety: as RoundContext.
#ifndef SLOTWISE_SERVER_ENGINE_OPERATIONS_DESCRIBE_SESSION_H_
#define SLOTWISE_SERVER_ENGINE_OPERATIONS_DESCRIBE_SESSION_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "server/engine/operations/definition.h"

namespace slotwise {

struct SessionSummary {
  struct Sequence {
    TableId table{0};  // 0: of several tables
    std::string name;  // the table's
    std::uint64_t last_step = 0;
  };
  std::vector<Sequence> sequences;  // those with a known step, by name
  std::uint64_t last_step = 0;      // the largest of the sequences'
  std::uint64_t epoch = 0;          // the latest epoch of its steps
  bool may_be_forgotten = false;    // no step is known, and its steps would be refused
};

struct DescribeSessionRequest {
  static constexpr Operation kOperation{13};
  static constexpr OperationClass kClass = OperationClass::kAlone;

  std::uint64_t session = 0;
  std::uint64_t epoch = 0;
  std::function<void(Result<SessionSummary>)> done;
  Caller caller = {};
};

namespace operations {

struct DescribeSession {
  using Request = DescribeSessionRequest;

  // The answer waits for the disk, like a push's: a trainer continues after these steps, and may never send
  // them again.
  static void Run(RoundContext& context, const Round& round) {
    const Ticket& asker = round.parts[0].ticket;
    if (!context.IsMine(asker)) return;
    const Request& asked = context.tickets.Get<Request>(asker.number);
    SessionSummary summary;
    const Ledger& ledger = context.tables.ledger();
    const auto look = [&](TableId table, std::string name) {
      const auto newest = ledger.NewestOf({.table = table, .session = asked.session});
      if (!newest) return;
      summary.last_step = std::max(summary.last_step, newest->number);
      summary.epoch = std::max(summary.epoch, newest->epoch);
      summary.sequences.push_back({.table = table, .name = std::move(name), .last_step = newest->number});
    };
    look(TableId{0}, "");
    context.tables.ForEach([&](const Table& table) { look(table.info.id, table.info.options.name.str()); });
    std::ranges::sort(summary.sequences, {}, &SessionSummary::Sequence::name);
    summary.may_be_forgotten =
        summary.sequences.empty() &&
        ledger.MayHaveForgotten({.table = TableId{0}, .session = asked.session}, asked.epoch);
    context.AnswerMineOnceRecorded<Request>(round, summary);
  }
};

}  // namespace operations

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_OPERATIONS_DESCRIBE_SESSION_H_
