// Requests: what the rpc room hands the engine, and what the engine answers. The rpc room has checked every
// value here, and the engine trusts them.
// Thread-safety: plain values. A `done` is called once, by the engine's thread or the caller's, and must not
// block.
#ifndef SLOTWISE_SERVER_ENGINE_REQUEST_H_
#define SLOTWISE_SERVER_ENGINE_REQUEST_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "kernels/shard.h"
#include "server/counters/table_counters.h"
#include "server/engine/announcement.h"
#include "server/engine/batch_part.h"
#include "server/engine/caller.h"
#include "server/engine/tables.h"
#include "slotwise/batch.h"
#include "slotwise/data_type.h"
#include "slotwise/status.h"
#include "slotwise/table_options.h"
#include "slotwise/types.h"

namespace slotwise {

// Numbers[samples · slots · dim]: a part of the round's output, which it keeps alive. They lie in host
// memory, or where the lookup wanted them.
struct PooledValues {
  std::shared_ptr<const void> values;
  std::size_t size = 0;  // numbers
  DataType type = DataType::kFloat32;
  TableVersion version = {};  // of the table that the rows are of

  std::size_t bytes() const { return size * BytesOf(type); }
  // REQUIRES: `type` is float32.
  std::span<const float> floats() const { return {static_cast<const float*>(values.get()), size}; }
};

struct LookupRequest {
  TableId table{0};
  LookupMode mode = LookupMode::kTrain;
  BatchPart batch;
  std::function<void(Result<PooledValues>)> done;
  DataType type = DataType::kFloat32;  // of the answer's numbers, each rounded once
  bool joined = false;                 // it came by LookupMany, whose lookups may share a round
  std::uint64_t answer_bytes = 0;      // of the answer's numbers; the engine fills it in
  // Where the answer's numbers go, which the client may write and read at any time; null: to memory of the
  // engine's.
  std::shared_ptr<std::byte[]> place = nullptr;
  bool place_on_device = false;  // the place is of the rank's device's memory, not of the host's
  // What the answer is charged to; it ends when the memory of the answer's numbers ends.
  Reservation answer_reservation = {};
  Caller caller = {};
  // Called in the place of `done`, if it is given, where the request is refused for a reason that is not its
  // own: that of all requests which were submitted with it, or of another table of its step.
  std::function<void(const Status&)> refused_with_others = nullptr;
};

// The newest state of a table in which a client had a step acknowledged, as the client says, which may be
// anything; incarnation 0: none.
struct Acknowledged {
  std::uint64_t incarnation = 0;  // of the start that acknowledged it
  std::uint64_t step = 0;         // the table's
  friend bool operator==(const Acknowledged&, const Acknowledged&) = default;
};

struct PushRequest {
  TableId table{0};
  StepId step;
  BatchPart batch;  // its values are the gradients: finite, float[samples · slots · dim]
  std::function<void(Result<AppliedStep>)> done;
  // A hash of the batch and its values (semantics.md): other bodies have other hashes, but for rare
  // accidents.
  std::uint32_t body = 0;
  std::optional<float> learning_rate = {};  // of this step alone; none: the table's own
  // What the client says that the rows were read of that the gradients are of, which may be anything; lineage
  // 0: it does not say. It is for counting alone.
  TableVersion looked_up = {};
  Acknowledged acknowledged = {};
  SquareSum gradients = {};  // of a sample of the gradients
  Reservation answer_reservation = {};
  Caller caller = {};
  std::function<void(const Status&)> refused_with_others = nullptr;  // as a LookupRequest's
};

struct CreatedTable {
  TableId id{0};
  bool created = false;  // false: it was there already, with the same options
};

// A table's options, apart from the request that has them: requests of all kinds take as much memory as the
// largest kind.
class OptionsApart {
 public:
  OptionsApart(const TableOptions& options = {})  // NOLINT(google-explicit-constructor): they are options
      : options_(std::make_shared<const TableOptions>(options)) {}
  const TableOptions& get() const { return *options_; }

 private:
  std::shared_ptr<const TableOptions> options_;
};

struct CreateTableRequest {
  OptionsApart options;
  std::function<void(Result<CreatedTable>)> done;
  Caller caller = {};
};

struct DropTableRequest {
  TableId table{0};
  std::function<void(Status)> done;
  Caller caller = {};
};

struct SetLearningRateRequest {
  TableId table{0};
  float learning_rate = 0;  // finite, above 0
  std::function<void(Status)> done;
  Caller caller = {};
};

// Requests that give or forget rows have one key a bag: bag b is batch.keys[b].
struct ImportRequest {
  TableId table{0};
  BatchPart batch;  // its values are the rows: finite, float[keys][dim], or with_state [keys][dim + state]
  bool with_state = false;
  std::uint64_t table_steps = 0;  // raises the table's count of applied steps to this
  std::function<void(Status)> done;
  Caller caller = {};
  // Of the table as the caller knows it; 0: as it is. UNAVAILABLE: a checkpoint was loaded since.
  std::uint64_t lineage = 0;
};

struct EraseRequest {
  TableId table{0};
  BatchPart batch;
  std::function<void(Result<std::uint64_t>)> done;  // how many keys had a row
  Caller caller = {};
};

// Asks for the keys that this rank holds, in no order.
struct ListKeysRequest {
  TableId table{0};
  std::function<void(Result<std::vector<Key>>)> done;
  // Is told how many keys will be listed, before there is a list; an error is the answer. Null: there is
  // room.
  std::function<Status(std::size_t keys)> room = nullptr;
  Caller caller = {};
};

// Asks for the rows of those of `keys` that this rank holds.
struct ReadRowsRequest {
  TableId table{0};
  std::vector<Key> keys;
  std::function<void(Result<RowRecords>)> done;
  Reservation reservation = {};
  Caller caller = {};
  std::uint64_t lineage = 0;  // as an ImportRequest's
};

// A table over all ranks.
struct TableSummary {
  std::uint64_t steps = 0;
  float learning_rate = 0;         // of the next step
  float base_learning_rate = 0;    // what the schedule starts from
  DigestSums digest;               // zeros unless asked for
  std::vector<ShardUsage> shards;  // in rank order
  TravelledRounds rounds;
  std::uint64_t lineage = 0;
};

struct SummarizeRequest {
  TableId table{0};
  bool with_digest = false;
  std::function<void(Result<TableSummary>)> done;
  Caller caller = {};
};

// What the ledger knows of a session.
struct SessionSummary {
  struct Sequence {
    TableId table{0};  // 0: of several tables
    std::string name;  // the table's
    std::uint64_t last_step = 0;
  };
  std::vector<Sequence> sequences;  // those of which a step is known; by name
  std::uint64_t last_step = 0;      // the largest of theirs
  std::uint64_t epoch = 0;          // the latest that its steps carried
  bool may_be_forgotten = false;    // no step is known, and its steps would be refused
};

struct DescribeSessionRequest {
  std::uint64_t session = 0;
  std::uint64_t epoch = 0;
  std::function<void(Result<SessionSummary>)> done;
  Caller caller = {};
};

// A checkpoint that exists.
struct SavedCheckpoint {
  std::string id;
  bool delta = false;
  std::uint64_t round = 0;  // it is the state after this one
  std::uint64_t rows = 0;   // that it has written
  std::uint64_t bytes = 0;  // of its files
};

struct SaveCheckpointRequest {
  bool delta = false;  // what changed since the newest checkpoint, if that is known; else all
  DataType value_type = DataType::kFloat32;  // of rows; optimizers' state is float32
  std::function<void(Result<SavedCheckpoint>)> done;
  Caller caller = {};
};

// Returns what a caller hears who asked for a checkpoint that cannot be loaded. DATA_LOSS would be of steps
// that the server had acknowledged, and after UNAVAILABLE callers try again.
inline Status RefusalToLoad(const Status& why) {
  if (why.code() == StatusCode::kDataLoss) return FailedPrecondition(why.message());
  return why.code() == StatusCode::kUnavailable ? Status(StatusCode::kInternal, why.message()) : why;
}

// Asks for the tables, and steps' names, of a checkpoint in the place of those that there are; or for some
// of its tables in the place of those of their names, and steps' names stay. Answered once a new checkpoint
// has them, which is what it returns.
struct LoadCheckpointRequest {
  std::string id;
  std::vector<TableId> tables = {};  // of the checkpoint, ascending; empty: all
  std::function<void(Result<SavedCheckpoint>)> done;
  Caller caller = {};
};

// A rank tells the others; nobody else asks.
struct CheckpointEventRequest {
  CheckpointEvent event = CheckpointEvent::kWritten;
  bool failed = false;
  std::function<void(Status)> done;
  Caller caller = {};  // nobody
};

using Request = std::variant<LookupRequest, PushRequest, CreateTableRequest, DropTableRequest,
                             SummarizeRequest, SetLearningRateRequest, ImportRequest, EraseRequest,
                             ListKeysRequest, ReadRowsRequest, SaveCheckpointRequest, CheckpointEventRequest,
                             LoadCheckpointRequest, DescribeSessionRequest>;

// Return the batch of a request, and the reservation of the request's arrays; null if the request has none.
BatchPart* BatchOf(Request& request);
Reservation* ReservationOf(Request& request);

// Returns the reservation of a request's answer; null if answers of its kind are charged nothing.
Reservation* AnswerReservationOf(Request& request);

// Return the bytes of the arrays that a request holds, and of those that its answer will have.
std::uint64_t BytesOf(const Request& request);
std::uint64_t AnswerBytesOf(const Request& request);

// Returns what other ranks are told of a request, without its ticket.
Announcement AnnouncementOf(const Request& request);

// Returns who sent a request.
const Caller& CallerOf(const Request& request);

// Returns whether nobody needs the request any more: its caller is gone. A part of a step of several is
// always needed, because the others may wait for it.
bool IsAbandoned(const Request& request);

// Returns whether the request is about a whole table, without keys or a batch. Such a request is charged
// nothing.
bool IsAboutTable(const Request& request);

// Answers a request of any kind with an error.
void Refuse(Request& request, const Status& status);
// The same for a reason that is not the request's own (LookupRequest::refused_with_others).
void RefuseWithOthers(Request& request, const Status& status);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_REQUEST_H_
