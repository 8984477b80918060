#include "server/engine/operations/alter_table.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include "server/durability/options_text.h"
#include "server/engine/evictor.h"
#include "server/engine/operations/replay_context.h"
#include "server/engine/operations/round_context.h"

namespace slotwise::operations {
namespace {

// A larger id in a record would leave no ids for later tables.
constexpr std::uint32_t kMaxTableId = 0xFFFF'0000;

// An alteration of a table on this rank, from the preparation of its shards to the end. If it is not kept,
// the destructor gives it up.
class Alteration {
 public:
  // `to` differs from the table's options by an alteration. The arguments outlive it.
  Alteration(Tables& tables, Table& table, const TableOptions& to)
      : tables_(tables),
        table_(table),
        to_(to),
        counted_(KeepsCounts(table.info.options, to) ? tables.CandidatesOf(table) : nullptr) {}
  Alteration(const Alteration&) = delete;
  Alteration& operator=(const Alteration&) = delete;
  ~Alteration() {
    for (Shard* const shard : begun_) shard->EndAlter(false, 0);
  }

  // Returns the candidates' table that stays, or null.
  Table* counted() const { return counted_; }
  // Returns whether the table gets a candidates' table: its first, or one with another counter.
  bool makes_candidates() const { return to_.has_candidates() && counted_ == nullptr; }

  // Prepares the shards. `most_rows` is this rank's bound, and make(options) makes the candidates' table, if
  // it is new. RESOURCE_EXHAUSTED: there is no memory.
  template <class Make>
  Status Prepare(std::uint64_t most_rows, const Make& make) {
    if (Status mine = Begin(table_, to_, most_rows); !mine.ok()) return mine;
    if (counted_ != nullptr) return Begin(*counted_, CandidatesOf(to_), kMaxRowsPerShard);
    if (!to_.has_candidates()) return {};
    Result<Table> made = make(CandidatesOf(to_));
    if (made.ok()) candidates_ = std::move(*made);
    return made.status();
  }

  // The table has the new options, and at most `most_rows` new rows here. Returns the shard of candidates
  // that the table has no more, or null. REQUIRES: Prepare was OK.
  std::unique_ptr<Shard> Keep(std::uint64_t most_rows) {
    for (Shard* const shard : std::exchange(begun_, {})) shard->EndAlter(true, table_.steps + 1);
    table_.max_rows_of_rank = most_rows;
    return tables_.Alter(table_.info.id, to_, std::move(candidates_));
  }

 private:
  Status Begin(Table& table, const TableOptions& to, std::uint64_t most_rows) {
    Status begun = table.shard->BeginAlter(to, most_rows);
    if (begun.ok()) begun_.push_back(table.shard.get());
    return begun;
  }

  Tables& tables_;
  Table& table_;
  const TableOptions to_;
  Table* const counted_;
  Table candidates_;
  std::vector<Shard*> begun_;
};

// Returns whether rows of the table, and of its candidates, stay as they are and have room (KeepsRows).
bool KeepsAllRows(const TableOptions& before, const TableOptions& after) {
  if (!KeepsRows(before, after)) return false;
  if (!before.has_candidates() || !after.has_candidates()) return true;
  return KeepsCounts(before, after) && KeepsRows(CandidatesOf(before), CandidatesOf(after));
}

std::uint64_t RowsOnAllRanks(RoundContext& context, const Table& table) {
  std::array<std::uint64_t, 1> rows{table.shard->Usage().rows};
  context.collective.AllReduceSum(rows);
  return rows[0];
}

// Refuses a max_rows that has fallen below the table's rows. Collective if it has fallen.
Status CheckRoom(RoundContext& context, const Table& table, const TableOptions& to) {
  if (to.max_rows >= table.info.options.max_rows) return {};
  const std::uint64_t rows = RowsOnAllRanks(context, table);
  if (rows <= to.max_rows) return {};
  return FailedPrecondition("max_rows is " + std::to_string(to.max_rows) + ", and table " + to.name.str() +
                            " has " + std::to_string(rows) + " rows: evict or erase rows first");
}

// Forgets candidates until there is room for those that are left, and adds that to `record`. The alteration
// is prepared on all ranks. Collective. RESOURCE_EXHAUSTED: a rank has no memory.
Status Forget(RoundContext& context, Table& counted, const TableOptions& to, AlterTable::Record& record) {
  if (to.max_rows >= counted.info.options.max_rows) return {};
  const std::uint64_t keys = RowsOnAllRanks(context, counted);
  if (keys <= to.max_rows) return {};
  Evictor& evictor = context.work.evictor();
  const std::uint64_t left = RowsOfShare(to.max_rows, to.eviction.to);
  const auto last = evictor.LastOf(counted, keys - left);
  const EvictionOrder order = EvictionOrder::Of(counted.info.options, counted.steps + 1);
  const std::uint64_t before = counted.shard->Usage().rows;
  const auto removed = evictor.Remove(counted, order, *last, Removal::kFull);
  if (!removed.ok()) return removed.status();
  counted.evicted_rows += removed->rows;
  counted.counters->CountEvicted(before - counted.shard->Usage().rows);
  record.last = *last;
  record.removed = *removed;
  return {};
}

// Reads or writes a record.
void VisitRecord(auto& fields, auto& record) {
  fields.Number(record.table);
  fields.Number(record.candidates);
  fields.Number(record.steps);
  fields.Number(record.last.score);
  fields.Number(record.last.tie);
  fields.Number(record.removed.rows);
  fields.Number(record.removed.checksum);
  fields.Count(record.options);
  fields.Elements(record.options);
}

// Alters the table on all ranks, or on none.
Status Alter(RoundContext& context, Table& table, const TableOptions& to) {
  if (const Status room = context.AgreeOnRoomToRecord(); !room.ok()) return room;
  Tables& tables = context.tables;
  Alteration alteration(tables, table, to);
  AlterTable::Record record{.table = table.info.id,
                            .candidates = alteration.makes_candidates() ? tables.NewId() : TableId{0},
                            .steps = table.steps,
                            .last = {},
                            .removed = {},
                            .options = OptionsText(to)};
  const std::uint64_t most_rows = context.maker.MostRowsOf(to);
  context.device.Wait();  // rows' memory may move
  Status done = context.work.Agree(alteration.Prepare(most_rows, [&](const TableOptions& of_candidates) {
    return context.maker.Make(record.candidates, of_candidates, tables.GenerationOf(record.candidates));
  }));
  if (done.ok() && alteration.counted() != nullptr)
    done = Forget(context, *alteration.counted(), CandidatesOf(to), record);
  if (!done.ok()) return done;
  if (!KeepsAllRows(table.info.options, to)) context.checkpointing.BeginWithBase();
  context.checkpointing.Keep(alteration.Keep(most_rows));
  context.Record(AlterTable::kRecords.front(), [&] { return AlterTable::Write(record); });
  return {};
}

}  // namespace

void AlterTable::Run(RoundContext& context, const Round& round) {
  Table& table = *context.tables.Get(round.table);
  const auto answer = [&](const Status& why) { context.AnswerMineWith<Request>(round, why); };
  const Ticket& asker = round.parts[0].ticket;
  const TableAlteration asked =
      context.IsMine(asker) ? context.tickets.Get<Request>(asker.number).alteration : TableAlteration{};
  const TableAlteration by =
      AllGatherValues(context.collective, asked)[static_cast<std::size_t>(Value(asker.rank))];
  const TableOptions to = Altered(table.made_with(), table.info.options, by);
  if (const Status legal = Validate(to); !legal.ok()) return answer(legal);
  const bool changes = to != table.info.options;
  if (changes && !KeepsAllRows(table.info.options, to) && context.checkpointing.busy()) {
    // The snapshots of the checkpoint have rows as they were.
    return context.AnswerMine<Request>(
        round, [&](Request& request) { context.checkpointing.Await(std::move(request)); });
  }
  if (changes) {
    if (const Status room = CheckRoom(context, table, to); !room.ok()) return answer(room);
    if (const Status altered = Alter(context, table, to); !altered.ok()) return answer(altered);
    // An answered client may ask any rank what the options are.
    std::array<std::uint64_t, 1> all_know{0};
    context.collective.AllReduceSum(all_know);
  }
  context.AnswerMineOnceRecorded<Request>(round, AlteredTable{table.info.options, changes});
}

std::vector<JournalPiece> AlterTable::Write(const Record& record) {
  RecordWriter writer;
  VisitRecord(writer, record);
  return writer.Finish();
}

Result<AlterTable::Record> AlterTable::Read(RecordKind /*kind*/, Rank /*rank*/,
                                            std::span<const std::byte> body) {
  Record record;
  RecordReader reader(body);
  VisitRecord(reader, record);
  if (Status end = reader.End(); !end.ok()) return end;
  return record;
}

Status AlterTable::Replay(ReplayContext& context, std::span<const Record> of_ranks) {
  if (Status alike = CheckAlike(of_ranks); !alike.ok()) return alike;
  const Record& record = of_ranks.front();
  Tables& tables = context.tables;
  if (Status there = CheckThereIs(tables, record.table); !there.ok()) return there;
  Table& table = *tables.Get(record.table);
  const TableOptions& now = table.info.options;
  const Result<TableOptions> to = OptionsFromText(record.options);
  if (!to.ok()) return to.status();
  if (!DifferByAlteration(now, *to))
    return DoesNotFollow("table " + now.name.str() + " cannot be altered to the options of table " +
                         to->name.str() + ": " + FirstDifference(now, *to));
  if (record.steps != table.steps) {
    return DoesNotFollow("table " + now.name.str() + " has taken " + std::to_string(table.steps) +
                         " steps, and was altered at " + std::to_string(record.steps));
  }
  Alteration alteration(tables, table, *to);
  if (alteration.makes_candidates() != (Value(record.candidates) != 0) ||
      (alteration.makes_candidates() &&
       (Value(record.candidates) < tables.next_id() || Value(record.candidates) > kMaxTableId))) {
    return DoesNotFollow("the candidates of table " + now.name.str() + " have id " +
                         std::to_string(Value(record.candidates)) + ", and the next one is " +
                         std::to_string(tables.next_id()));
  }
  if (record.removed.rows > 0 && alteration.counted() == nullptr)
    return DoesNotFollow("table " + now.name.str() + " has no candidates that were forgotten");
  Status prepared = alteration.Prepare(kMaxRowsPerShard, [&](const TableOptions& of_candidates) {
    return context.maker.MakeForRowsOfBefore(record.candidates, of_candidates,
                                             tables.GenerationOf(record.candidates));
  });
  if (!prepared.ok()) return prepared;
  if (Table* const counted = alteration.counted(); record.removed.rows > 0) {
    const EvictionOrder order = EvictionOrder::Of(counted->info.options, counted->steps + 1);
    const Status again =
        Evictor::Replay(*counted, order, record.last, context.evicted, context.round_outcome, Removal::kFull);
    if (!again.ok()) return again;
    context.recorded_evicted.rows += record.removed.rows;
    context.recorded_evicted.checksum += record.removed.checksum;
  }
  if (!KeepsAllRows(now, *to)) context.rows_were_altered = true;
  alteration.Keep(context.maker.MostRowsOf(*to));
  return {};
}

}  // namespace slotwise::operations
