#include "server/engine/operations/create_table.h"

#include <cstddef>
#include <string>
#include <utility>

#include "server/durability/options_text.h"
#include "server/engine/operations/replay_context.h"
#include "server/engine/operations/round_context.h"

namespace slotwise::operations {
namespace {

// A larger id in a record would leave no ids for later tables.
constexpr std::uint32_t kMaxTableId = 0xFFFF'0000;

// Returns the table of candidates that `make` makes of its options; a table without a shard if there is none.
Result<Table> OfCandidates(const TableOptions& options, const auto& make) {
  if (!options.has_candidates()) return Table{};
  return make(CandidatesOf(options));
}

void Add(Tables& tables, Table table, Table candidates) {
  tables.Add(std::move(table));
  if (candidates.shard) tables.Add(std::move(candidates));
}

}  // namespace

void CreateTable::Run(RoundContext& context, const Round& round) {
  Tables& tables = context.tables;
  const Ticket& asker = round.parts[0].ticket;
  const auto answer = [&](const Result<CreatedTable>& result) {
    context.AnswerMineWith<Request>(round, result);
  };
  const TableOptions asked =
      context.IsMine(asker) ? context.tickets.Get<Request>(asker.number).options : TableOptions{};
  const TableOptions options =
      AllGatherValues(context.collective, asked)[static_cast<std::size_t>(Value(asker.rank))];

  if (const auto same_name = tables.Find(options.name.view())) {
    if (same_name->options == options || tables.Get(same_name->id)->made_with() == options) {
      return context.AnswerMineOnceRecorded<Request>(round,
                                                     CreatedTable{same_name->id, false, same_name->options});
    }
    return answer(AlreadyExists("table " + options.name.str() +
                                " exists with other options: " + FirstDifference(same_name->options, options))
                      .Because(Reason::kOtherOptions));
  }

  if (tables.full()) {
    return answer(ResourceExhausted("the server has " + std::to_string(tables.most()) +
                                    " tables, the most that limits.max_tables allows"));
  }

  if (const Status room = context.AgreeOnRoomToRecord(); !room.ok()) return answer(room);

  const TableId id = tables.NewId();
  Result<Table> table = context.maker.Make(id, options, tables.GenerationOf(id));
  Result<Table> candidates = OfCandidates(options, [&](const TableOptions& theirs) {
    const TableId next = tables.NewId();
    return context.maker.Make(next, theirs, tables.GenerationOf(next));
  });
  const Status mine = table.ok() ? candidates.status() : table.status();
  std::array<std::uint64_t, 1> failed{mine.ok() ? 0U : 1U};
  context.collective.AllReduceSum(failed);
  if (failed[0] > 0) {
    return answer(mine.ok() ? ResourceExhausted("another rank has no memory for table " + options.name.str())
                                  .Because(Reason::kNoMemory)
                            : mine);
  }
  const Record record{.table = id, .generation = table->generation, .options = options};
  Add(tables, std::move(*table), std::move(*candidates));
  context.evicted.Begin(id, round.number, false);
  context.Record(kRecords.front(), [&] { return Write(record); });
  // An answered client may use the table at any rank, so every rank must know the table first.
  context.collective.AllReduceSum(failed);
  context.AnswerMineOnceRecorded<Request>(round, CreatedTable{id, true, options});
}

std::vector<JournalPiece> CreateTable::Write(const Record& record) {
  const std::string text = OptionsText(record.options);
  RecordWriter writer;
  writer.Put(record.table);
  writer.Put(record.generation);
  writer.Count(text);
  writer.Elements(text);
  return writer.Finish();
}

Result<CreateTable::Record> CreateTable::Read(RecordKind kind, Rank /*rank*/,
                                              std::span<const std::byte> body) {
  Record record;
  RecordReader reader(body);
  record.table = reader.Get<TableId>();
  record.generation = reader.Get<std::uint64_t>();
  const auto text = reader.GetArray<char>(reader.Get<std::uint32_t>());
  if (Status end = reader.End(); !end.ok()) return end;
  Result<TableOptions> options =
      (kind == kFlat ? FlatOptionsFromText : OptionsFromText)({text.data(), text.size()});
  if (!options.ok()) return options.status();
  record.options = *options;
  return record;
}

Status CreateTable::Replay(ReplayContext& context, std::span<const Record> of_ranks) {
  if (Status alike = CheckAlike(of_ranks); !alike.ok()) return alike;
  const Record& record = of_ranks.front();
  Tables& tables = context.tables;
  if (tables.Get(record.table) != nullptr || tables.Find(record.options.name.view()))
    return DoesNotFollow("table " + record.options.name.str() + " is there already");
  if (Value(record.table) < tables.next_id() || Value(record.table) > kMaxTableId) {
    return DoesNotFollow("a new table has id " + std::to_string(Value(record.table)) +
                         ", and the next one is " + std::to_string(tables.next_id()));
  }
  if (record.generation == 0) return DataLoss("a table's generation is 0, which no table has");
  Result<Table> table = context.maker.MakeForRowsOfBefore(record.table, record.options, record.generation);
  Result<Table> candidates = OfCandidates(record.options, [&](const TableOptions& theirs) {
    const TableId next = IdOfCandidates(record.table);
    return context.maker.MakeForRowsOfBefore(next, theirs, tables.GenerationOf(next));
  });
  if (!table.ok()) return table.status();
  if (!candidates.ok()) return candidates.status();
  Add(tables, std::move(*table), std::move(*candidates));
  return {};
}

}  // namespace slotwise::operations
