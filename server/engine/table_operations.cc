// Operations on whole tables: to make, drop and summarize one, and to set its learning rate; and what is
// asked of all tables together: a checkpoint, a session's steps.
#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "server/engine/operations.h"

namespace slotwise {

void Operations::CreateTable(const Round& round) {
  const Ticket& asker = round.parts[0].ticket;
  const auto answer = [&](const Result<CreatedTable>& result) {
    AnswerMine<CreateTableRequest>(round, [&](CreateTableRequest& request) { request.done(result); });
  };
  const TableOptions asked =
      IsMine(asker) ? tickets_.Get<CreateTableRequest>(asker.number).options.get() : TableOptions{};
  const TableOptions options =
      AllGatherValues(collective_, asked)[static_cast<std::size_t>(Value(asker.rank))];

  if (const auto same_name = tables_.Find(options.name.view())) {
    if (same_name->options == options) {
      return AnswerMineOnceRecorded<CreateTableRequest>(round, CreatedTable{same_name->id, false});
    }
    return answer(AlreadyExists("table " + options.name.str() + " exists with other options: " +
                                FirstDifference(same_name->options, options)));
  }

  if (tables_.full()) {
    return answer(ResourceExhausted("the server has " + std::to_string(tables_.most()) +
                                    " tables, the most that limits.max_tables allows"));
  }

  if (const Status room = AgreeOnRoomToRecord(); !room.ok()) return answer(room);

  const TableId id = tables_.NewId();
  Result<Table> table = maker_.Make(id, options, tables_.LineageOf(id));
  std::array<std::uint64_t, 1> failed{table.ok() ? 0U : 1U};
  collective_.AllReduceSum(failed);
  if (failed[0] > 0) {
    return answer(table.ok() ? ResourceExhausted("another rank has no memory for table " + options.name.str())
                             : table.status());
  }
  const std::uint64_t lineage = table->lineage;
  tables_.Add(std::move(*table));
  log_.NoteChange(round_);
  if (log_.on()) log_.Append(round_, RecordKind::kCreateTable, RecordCreateTable(id, options, lineage));
  // A client that hears of the table may use it at any rank: so every rank must know the table first.
  collective_.AllReduceSum(failed);
  AnswerMineOnceRecorded<CreateTableRequest>(round, CreatedTable{id, true});
}

void Operations::DropTable(const Round& round) {
  if (const Status room = AgreeOnRoomToRecord(); !room.ok()) {
    return AnswerMine<DropTableRequest>(round, [&](DropTableRequest& request) { request.done(room); });
  }
  checkpointing_.Keep(tables_.Remove(round.table));
  log_.NoteChange(round_);
  if (log_.on()) log_.Append(round_, RecordKind::kDropTable, RecordDropTable(round.table));
  std::array<std::uint64_t, 1> all_done{0};
  collective_.AllReduceSum(all_done);
  AnswerMineOnceRecorded<DropTableRequest>(round, Status());
}

// Whoever asks goes on behind these steps and may never send them again: so the answer waits for the disk, as
// a push's does.
void Operations::DescribeSession(const Round& round) {
  const Ticket& asker = round.parts[0].ticket;
  if (!IsMine(asker)) return;
  const auto& asked = tickets_.Get<DescribeSessionRequest>(asker.number);
  SessionSummary summary;
  const Ledger& ledger = tables_.ledger();
  const auto look = [&](TableId table, std::string name) {
    const auto newest = ledger.NewestOf({.table = table, .session = asked.session});
    if (!newest) return;
    summary.last_step = std::max(summary.last_step, newest->number);
    summary.epoch = std::max(summary.epoch, newest->epoch);
    summary.sequences.push_back({.table = table, .name = std::move(name), .last_step = newest->number});
  };
  look(TableId{0}, "");
  tables_.ForEach([&](const Table& table) { look(table.info.id, table.info.options.name.str()); });
  std::ranges::sort(summary.sequences, {}, &SessionSummary::Sequence::name);
  summary.may_be_forgotten =
      summary.sequences.empty() &&
      ledger.MayHaveForgotten({.table = TableId{0}, .session = asked.session}, asked.epoch);
  AnswerMineOnceRecorded<DescribeSessionRequest>(round, summary);
}

void Operations::Summarize(const Round& round, Table& table) {
  TableSummary summary;
  summary.steps = table.steps;
  summary.lineage = table.lineage;
  summary.learning_rate = LearningRateOfStep(table.optimizer(), table.steps + 1);
  summary.base_learning_rate = table.learning_rate;
  summary.shards = AllGatherValues(collective_, table.shard->Usage());
  summary.rounds = table.rounds;
  if (round.with_digest) {
    const DigestSums mine = table.shard->Digest();
    std::array<std::uint64_t, 2> sums{mine.low, mine.high};
    collective_.AllReduceSum(sums);
    summary.digest = {sums[0], sums[1]};
  }
  AnswerMine<SummarizeRequest>(round, [&](SummarizeRequest& request) { request.done(summary); });
}

void Operations::SetLearningRate(const Round& round, Table& table) {
  if (const Status room = AgreeOnRoomToRecord(); !room.ok()) {
    return AnswerMine<SetLearningRateRequest>(round,
                                              [&](SetLearningRateRequest& request) { request.done(room); });
  }
  table.learning_rate = *round.learning_rate;
  log_.NoteChange(round_);
  if (log_.on()) {
    log_.Append(round_, RecordKind::kSetLearningRate,
                RecordSetLearningRate(round.table, *round.learning_rate));
  }
  AnswerMineOnceRecorded<SetLearningRateRequest>(round, Status());
}

}  // namespace slotwise
