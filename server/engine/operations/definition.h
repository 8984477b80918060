// Defines operations: the concepts that each operation's struct satisfies, and the table in which the engine
// finds an operation by its number.
//
// An operation has a type of requests (schedule/request.h) and runs their rounds on every rank. An operation
// that changes state also defines the round's journal record, and applies such a record to the tables. For a
// plain operation, the round and a recovery call the same Apply. Each operation is one file; all.cc lists
// them. The smallest journaled operation is set_learning_rate.h.
//
// Thread-safety: free functions and constants.
#ifndef SLOTWISE_SERVER_ENGINE_OPERATIONS_DEFINITION_H_
#define SLOTWISE_SERVER_ENGINE_OPERATIONS_DEFINITION_H_

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/engine/operations/record_bytes.h"
#include "server/engine/operations/replay_context.h"
#include "server/engine/operations/round_context.h"
#include "server/engine/schedule/operation.h"
#include "server/engine/schedule/request.h"
#include "server/engine/schedule/round.h"
#include "slotwise/status.h"

namespace slotwise {

template <class O>
concept RoundOperation =
    RequestType<typename O::Request> && requires(RoundContext& context, const Round& round) {
      // Runs the round. Answers the round's requests on this rank at once, or when the device has done the
      // round's work: rounds overlap (stage.h). Collective.
      { O::Run(context, round) } -> std::same_as<void>;
    };

// An operation whose rounds go into the journal. O::kRecords are the kinds of its records.
template <class O>
concept JournaledOperation = RoundOperation<O> && requires { typename O::Record; } && requires {
  { O::kRecords.front() } -> std::convertible_to<RecordKind>;
};

// An operation whose record is alike on all ranks, and is read and written field by field (record_bytes.h).
template <class O>
concept PlainlyJournaledOperation =
    JournaledOperation<O> && std::equality_comparable<typename O::Record> &&
    requires(RecordWriter& writer, RecordReader& reader, const Tables& state, Tables& tables,
             typename O::Record& record, const typename O::Record& written) {
      O::Visit(writer, record);
      O::Visit(reader, record);
      // DATA_LOSS: the record cannot follow on the tables' state.
      { O::Check(state, written) } -> std::same_as<Status>;
      O::Apply(tables, written);
    };

// An operation that reads the ranks' records itself, and applies them.
template <class O>
concept SpeciallyJournaledOperation =
    JournaledOperation<O> &&
    requires(ReplayContext& context, RecordKind kind, Rank rank, std::span<const std::byte> body,
             std::span<const typename O::Record> of_ranks) {
      { O::Read(kind, rank, body) } -> std::same_as<Result<typename O::Record>>;
      { O::Replay(context, of_ranks) } -> std::same_as<Status>;
    };

// Returns the bytes of a plain record.
template <PlainlyJournaledOperation O>
std::vector<JournalPiece> WrittenRecord(typename O::Record record) {
  RecordWriter writer;
  O::Visit(writer, record);
  return writer.Finish();
}

// Reads a plain record. INVALID_ARGUMENT, with the place: the bytes are no such record.
template <PlainlyJournaledOperation O>
Result<typename O::Record> ReadPlainRecord(std::span<const std::byte> body) {
  typename O::Record record;
  RecordReader reader(body);
  O::Visit(reader, record);
  if (Status end = reader.End(); !end.ok()) return end;
  return record;
}

// Runs the whole round of a plain operation: reserves room for the record, applies it, records it, and
// answers the callers.
template <PlainlyJournaledOperation O>
void RunPlainRound(RoundContext& context, const Round& round, const typename O::Record& record) {
  if (const Status room = context.AgreeOnRoomToRecord(); !room.ok())
    return context.AnswerMineWith<typename O::Request>(round, room);
  O::Apply(context.tables, record);
  context.Record(O::kRecords.front(), [&] { return WrittenRecord<O>(record); });
  context.AnswerMineOnceRecorded<typename O::Request>(round, Status());
}

// An operation as the engine sees it.
struct OperationTraits {
  Operation number{};
  bool takes_long = false;  // its rounds go over a whole table, or make one
  bool overlaps = false;    // its rounds may begin before the device has done the last one
  void (*run)(RoundContext&, const Round&) = nullptr;
  std::span<const RecordKind> records = {};
  // Replays a round from the bodies of its records, by rank. DATA_LOSS: the records cannot follow on the
  // state, or do not fit together. RESOURCE_EXHAUSTED: no memory for the rows.
  Status (*replay)(ReplayContext&, RecordKind, std::span<const std::span<const std::byte>>) = nullptr;
};

namespace detail {

template <JournaledOperation O>
Status ReplayBodies(ReplayContext& context, RecordKind kind,
                    std::span<const std::span<const std::byte>> bodies) {
  std::vector<typename O::Record> records;
  for (std::size_t rank = 0; rank < bodies.size(); ++rank) {
    context.reads_of = rank;
    Result<typename O::Record> read = [&] {
      if constexpr (SpeciallyJournaledOperation<O>) {
        return O::Read(kind, Rank{static_cast<std::int32_t>(rank)}, bodies[rank]);
      } else {
        return ReadPlainRecord<O>(bodies[rank]);
      }
    }();
    if (!read.ok()) return DataLoss(read.status().message());
    records.push_back(std::move(*read));
  }
  context.reads_of = 0;
  if constexpr (SpeciallyJournaledOperation<O>) {
    return O::Replay(context, records);
  } else {
    if (Status alike = CheckAlike<typename O::Record>(records); !alike.ok()) return alike;
    if (Status follows = O::Check(context.tables, records.front()); !follows.ok()) return follows;
    O::Apply(context.tables, records.front());
    return {};
  }
}

}  // namespace detail

template <RoundOperation O>
constexpr OperationTraits TraitsOf() {
  OperationTraits traits{.number = O::Request::kOperation, .run = &O::Run};
  if constexpr (requires { O::kTakesLong; }) traits.takes_long = O::kTakesLong;
  if constexpr (requires { O::kOverlaps; }) traits.overlaps = O::kOverlaps;
  if constexpr (JournaledOperation<O>) {
    static_assert(PlainlyJournaledOperation<O> || SpeciallyJournaledOperation<O>,
                  "what is journaled has to be read again");
    traits.records = O::kRecords;
    traits.replay = &detail::ReplayBodies<O>;
  }
  return traits;
}

// All operations of a server, found by number or by kind of record.
class OperationTable {
 public:
  // `more` are a test's operations, and outlive the table. Throws std::logic_error if two operations have the
  // same number, or records of the same kind.
  explicit OperationTable(std::span<const OperationTraits> more = {});

  // REQUIRES: there is such an operation, which is certain because all ranks run the same program.
  const OperationTraits& Of(Operation number) const { return by_number_[static_cast<std::size_t>(number)]; }
  // Returns null if no operation has records of this kind.
  const OperationTraits* OfRecord(RecordKind kind) const;

 private:
  std::array<OperationTraits, 256> by_number_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_OPERATIONS_DEFINITION_H_
