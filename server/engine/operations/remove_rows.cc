#include "server/engine/operations/remove_rows.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "server/engine/evictor.h"
#include "server/engine/operations/replay_context.h"
#include "server/engine/operations/round_context.h"

namespace slotwise::operations {
namespace {

using Which = RemoveRequest::Which;
using Record = RemoveRows::Record;

constexpr std::uint64_t kLastTie = std::numeric_limits<std::uint64_t>::max();

// Returns the last place before all places with this score or a higher one.
std::optional<EvictionPlace> LastBelow(std::uint64_t number, ScoreKind kind) {
  if (number == 0) return std::nullopt;
  if (CountsOccurrences(kind)) {
    number = std::min(number, OccurrenceScore::kMostCount + 1) << OccurrenceScore::kStepBits;
  }
  return EvictionPlace{number - 1, kLastTie};
}

// Returns up to where rows go; nothing: none do. Collective.
std::optional<EvictionPlace> LastToGo(RoundContext& context, const Table& table,
                                      const RemoveRequest::Asked& asked, std::uint64_t seconds) {
  const TableOptions& options = table.info.options;
  switch (asked.which) {
    case Which::kExpired: {
      const auto step = table.expiry.LastExpired(options, table.steps, seconds);
      if (!step) return std::nullopt;
      return EvictionPlace{*step, kLastTie};
    }
    case Which::kAllBut: {
      std::array<std::uint64_t, 1> rows{table.shard->Usage().rows};
      context.collective.AllReduceSum(rows);
      if (rows[0] <= asked.number) return std::nullopt;
      return context.work.evictor().LastOf(table, rows[0] - asked.number);
    }
    case Which::kBelow:
      return LastBelow(asked.number, options.score());
  }
  return std::nullopt;
}

EvictionOrder OrderOf(const Table& table, bool by_step) {
  const EvictionOrder order = EvictionOrder::Of(table.info.options, table.steps + 1);
  return by_step ? order.ByStep() : order;
}

// Removes the rows, notes the sweep, and records both. Returns how many rows went. Collective.
Result<std::uint64_t> Remove(RoundContext& context, Table& table, const RemoveRequest::Asked& asked,
                             std::uint64_t seconds) {
  if (Status room = context.AgreeOnRoomToRecord(); !room.ok()) return room;
  const bool sweeps = asked.which == Which::kExpired;
  Record record{.table = table.info.id, .steps = table.steps, .seconds = seconds, .last = {}, .removed = {}};
  if (const auto last = LastToGo(context, table, asked, seconds)) {
    const std::uint64_t before = table.shard->Usage().rows;
    const Removal why = sweeps ? Removal::kExpired : Removal::kAsked;
    auto removed = context.work.evictor().Remove(table, OrderOf(table, sweeps), *last, why);
    if (!removed.ok()) return removed.status();
    if (removed->rows > 0) {
      record.flags = RemoveRows::kRemoves | (sweeps ? RemoveRows::kByStep : 0);
      record.last = *last;
      record.removed = *removed;
      const std::uint64_t mine = before - table.shard->Usage().rows;
      (sweeps ? table.expired_rows : table.evicted_rows) += removed->rows;
      sweeps ? table.counters->CountExpired(mine) : table.counters->CountEvicted(mine);
    }
  }
  if (sweeps && table.expiry.NoteSweep(table.info.options, table.steps, seconds))
    record.flags |= RemoveRows::kSweeps;
  if (record.flags != 0)
    context.Record(RemoveRows::kRecords.front(), [&] { return RemoveRows::Write(record); });
  return record.removed.rows;
}

}  // namespace

void RemoveRows::Run(RoundContext& context, const Round& round) {
  Table& table = *context.tables.Get(round.table);
  const TableOptions& options = table.info.options;
  const auto asked = round.payload.As<Request::Asked>();
  const bool sweeps = asked.which == Which::kExpired;
  if (sweeps ? !options.expires() : !options.has_scores()) {
    const std::string why = sweeps ? " has no time to live: its rows never expire"
                                   : " keeps no scores: make it with an eviction or a time to live";
    return context.AnswerMineWith<Request>(
        round, FailedPrecondition("table " + options.name.str() + why).Because(Reason::kOtherOptions));
  }
  const std::uint64_t seconds =
      options.ttl_seconds > 0 ? AllGatherValues(context.collective, context.clock.UnixSeconds()).front() : 0;
  const Result<std::uint64_t> rows = Remove(context, table, asked, seconds);
  if (rows.ok()) return context.AnswerMineOnceRecorded<Request>(round, *rows);
  // The rows wait for the next sweep.
  if (sweeps) table.expiry.NoteSweep(options, table.steps, seconds);
  context.AnswerMineWith<Request>(round, rows.status());
}

std::vector<JournalPiece> RemoveRows::Write(Record record) {
  RecordWriter writer;
  Visit(writer, record);
  return writer.Finish();
}

Result<Record> RemoveRows::Read(RecordKind /*kind*/, Rank /*rank*/, std::span<const std::byte> body) {
  Record record;
  RecordReader reader(body);
  Visit(reader, record);
  if (Status end = reader.End(); !end.ok()) return end;
  return record;
}

Status RemoveRows::Replay(ReplayContext& context, std::span<const Record> of_ranks) {
  if (Status alike = CheckAlike(of_ranks); !alike.ok()) return alike;
  const Record& record = of_ranks.front();
  if (Status there = CheckThereIs(context.tables, record.table); !there.ok()) return there;
  Table& table = *context.tables.Get(record.table);
  const TableOptions& options = table.info.options;
  const auto follows_not = [&](const std::string& what) {
    return DoesNotFollow("table " + options.name.str() + what);
  };
  if (!options.has_scores())
    return follows_not(" has no scores, and a round has removed rows by their scores");
  if (record.steps != table.steps) {
    return follows_not(" has taken " + std::to_string(table.steps) +
                       " steps, and a round that removed rows " + std::to_string(record.steps));
  }
  if ((record.flags & kSweeps) != 0 && !options.expires())
    return follows_not("'s rows never expire, and a round has swept the table");
  if (record.flags == 0 || record.flags > (kRemoves | kByStep | kSweeps))
    return DataLoss("flags is " + std::to_string(record.flags) + ": must be 1 to 7");
  if (record.seconds > Expiry::kMostSeconds)
    return DataLoss("seconds is " + std::to_string(record.seconds) + ": must be at most " +
                    std::to_string(Expiry::kMostSeconds));
  if ((record.flags & kRemoves) != 0) {
    const bool by_step = (record.flags & kByStep) != 0;
    const Removal why = by_step ? Removal::kExpired : Removal::kAsked;
    if (Status again = Evictor::Replay(table, OrderOf(table, by_step), record.last, context.evicted,
                                       context.round_outcome, why);
        !again.ok())
      return again;
    context.recorded_evicted.rows += record.removed.rows;
    context.recorded_evicted.checksum += record.removed.checksum;
  }
  if ((record.flags & kSweeps) != 0) table.expiry.NoteSweep(options, table.steps, record.seconds);
  return {};
}

}  // namespace slotwise::operations
