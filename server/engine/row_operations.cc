// Rows by key: all ranks import and erase together; each rank lists and reads its own rows alone.
#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "server/engine/operations.h"

namespace slotwise {
namespace {

// Returns what `read` returns, or RESOURCE_EXHAUSTED if it has no memory.
template <class Read>
auto OrNoMemory(Read read, const char* message) -> Result<decltype(read())> {
  try {
    return read();
  } catch (const std::bad_alloc&) {
    return ResourceExhausted(message);
  }
}

// No other rank has a part in the rounds of an export, so a rank need not ask them whether to work.
Status Gone() { return Cancelled("the caller is gone"); }

}  // namespace

void Operations::Import(const Round& round, Table& table) {
  const TableOptions& options = table.info.options;
  const std::uint32_t state = round.with_state ? StateFloats(options.optimizer.kind, options.dim) : 0;
  const std::uint32_t columns = options.dim + state;
  const BatchLayout layout(round, 1, collective_.size());
  Stage& stage = stages_.Next();
  const std::array<TableWork::Share, 1> batch{{{&table, stage.gather().Gather(round, layout)}}};
  const Status prepared = work_.PrepareAndInsert(batch, PrepareFor::kInsert, RoomToRecord(round));
  if (prepared.ok()) {
    checkpointing_.BeforeChange(*table.shard);
    const std::array<ValueShare, 1> share{{{.of = {&round, &layout}, .columns = columns}}};
    const float* const values = stage.gather().GatherBagValues(share).front();
    stage.gather().OrderWorkAfterValues();
    table.shard->Assign(values, columns);
    table.steps = std::max(table.steps, round.table_steps);
    RecordBatchRound(RecordKind::kImport, round, {&table.steps, 1}, stage);
  }
  stage.Close(device_.WorkStream());
  if (prepared.ok()) return AnswerMineOnceRecorded<ImportRequest>(round, prepared, &stage);
  AnswerMine<ImportRequest>(
      round, [&](ImportRequest& request) { request.done(prepared); }, &stage);
}

void Operations::Erase(const Round& round, Table& table) {
  const BatchLayout layout(round, 1, collective_.size());
  Stage& stage = stages_.Next();
  Status prepared = table.shard->Prepare(stage.gather().Gather(round, layout), false).status();
  if (prepared.ok()) prepared = table.shard->PrepareErase();
  if (prepared.ok()) prepared = MakeRoomToRecord(round);
  prepared = work_.Agree(prepared);

  std::array<std::uint64_t, 1> erased{0};
  if (prepared.ok()) {
    checkpointing_.BeforeChange(*table.shard);
    erased[0] = table.shard->Erase();
    collective_.AllReduceSum(erased);
    RecordBatchRound(RecordKind::kErase, round, {&table.steps, 1}, stage);
  }
  stage.Close(device_.WorkStream());
  if (prepared.ok()) return AnswerMineOnceRecorded<EraseRequest>(round, erased[0], &stage);
  AnswerMine<EraseRequest>(
      round, [&](EraseRequest& request) { request.done(prepared); }, &stage);
}

void Operations::ListKeys(const Round& round, Table& table) {
  AnswerMine<ListKeysRequest>(round, [&](ListKeysRequest& request) {
    if (request.caller.gone()) return request.done(Gone());
    if (request.room) {
      if (Status room = request.room(table.shard->Usage().rows); !room.ok()) return request.done(room);
    }
    request.done(OrNoMemory([&] { return table.shard->Keys(); }, "no memory for a list of the rank's keys"));
  });
}

void Operations::ReadRows(const Round& round, Table& table) {
  AnswerMine<ReadRowsRequest>(round, [&](ReadRowsRequest& request) {
    if (request.caller.gone()) return request.done(Gone());
    request.done(OrNoMemory([&] { return table.shard->Read(request.keys); }, "no memory for the rows"));
  });
}

}  // namespace slotwise
