// A Client calls a Slotwise server: tables, lookups, pushes, rows by key.
//
//   auto client = slotwise::Client::Connect({"127.0.0.1:7070"});
//   if (!client.ok()) return client.status();
//   client->CreateTable(options);
//   client->Lookup("ads", {keys, offsets}, slotwise::LookupMode::kTrain, pooled);
//   client->Push("ads", {keys, offsets}, gradients);
//
// The client cuts batches by samples into parts of 1 to 4 MiB, which travel side by side to all ranks, and
// calls of several tables into such requests of whole tables, or of parts of large ones. If a rank is gone or
// too busy, the client sends the call again to another rank, until the timeout. A push is applied once,
// however often the client sends it. The Python client uses this one (slotwise.h).
//
// Every call may end with DEADLINE_EXCEEDED or UNAVAILABLE if no answer came within the timeout (the caller
// then does not know whether a push was applied; pushing again with the same Step is safe), or with
// RESOURCE_EXHAUSTED and a Status::retry_after() if the server stayed too busy, with CANCELLED if the caller
// asked to stop (a push may then have been applied, as after a timeout), with FAILED_PRECONDITION if the
// client is being destroyed or the server has another version, and with INTERNAL. Lookups and pushes end with
// DATA_LOSS if the table no longer has a step that this client saw acknowledged, because the server or the
// table was made anew; calls that begin later go on with the table as it is. The methods name other errors.
//
// Thread-safety: any number of threads may use one Client. A process that has connected may fork; its child
// can use neither the parent's Client nor one of its own, because gRPC does not survive a fork: every call
// ends with FAILED_PRECONDITION there.
#ifndef SLOTWISE_CLIENT_H_
#define SLOTWISE_CLIENT_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "slotwise/batch.h"
#include "slotwise/credentials.h"
#include "slotwise/data_type.h"
#include "slotwise/gpu.h"
#include "slotwise/power_histogram.h"
#include "slotwise/server_stats.h"
#include "slotwise/session.h"
#include "slotwise/status.h"
#include "slotwise/table_options.h"
#include "slotwise/types.h"

namespace slotwise {

// A TransportKind is a way by which lookups and pushes reach the server. All transports give the same bytes.
enum class TransportKind : std::uint8_t {
  kBest,  // the fastest: memory that is shared with a server on this host, else sockets
  kGrpc,  // gRPC, as everything else, for example through a proxy that speaks HTTP/2 alone
  kTcp,   // sockets, wherever the server is
  kShm,   // memory that is shared with a server on this host; UNAVAILABLE if there is none
  kGpu,   // like kBest, but calls with arrays on a GPU (slotwise/gpu.h) may use a CPU's memory in its place
};

using Door = TransportKind;  // its name in 0.1

struct ClientOptions {
  // The longest that one call may take, all tries and waits together.
  std::chrono::milliseconds timeout{30'000};
  // Connections to each rank. Large batches are spread over them, because one connection keeps about one core
  // busy. 1 to 1024.
  int channels_per_rank = 2;
  // The client's own threads, which read replies and run callbacks. 1 to 1024.
  int threads = 2;
  // The type that values and gradients have on the wire; in the caller's arrays they are always float32. The
  // 16-bit types halve the bytes and round (data_type.h).
  DataType data_type = DataType::kFloat32;
  TransportKind transport = TransportKind::kBest;
  std::optional<TransportKind> door = std::nullopt;  // `transport`'s name in 0.1
  Credentials credentials = {};
  // A lookup of rows that are not pooled (one key a bag, no weights) sends a repeated key once, where that
  // pays. The result is the same as if every key were sent.
  bool send_each_key_once = true;
  // Called with a line for people whenever a request is sent again, from the client's threads. It must not
  // block, and must not use the client.
  std::function<void(std::string_view)> log = nullptr;
};

// Names the state of a table from which a lookup read rows: the table's generation, and how many optimizer
// steps were applied to it. Generation 0 names none.
struct LookedUpState {
  std::uint64_t generation = 0;
  std::uint64_t table_step = 0;
  friend bool operator==(const LookedUpState&, const LookedUpState&) = default;
};

// Says how one call differs from the client's options.
struct CallOptions {
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
  std::optional<DataType> data_type = std::nullopt;  // for lookups and pushes
  std::stop_token stop = {};                         // a stop ends the call soon, with CANCELLED
  // The trace that the call belongs to, as the W3C's Trace Context writes it in the field traceparent
  // ("00-<trace id>-<parent id>-<flags>"); the server's log has the trace's id. An invalid text is not sent.
  std::string traceparent = {};
  // For pushes: for each table, in the call's order, the state that the gradients' rows were read from. The
  // server counts how many steps the table got since (docs/metrics.md); nothing else depends on it. A table
  // without a state here gets that of the client's latest lookup of the table.
  std::vector<LookedUpState> looked_up = {};
  // Gives a push a rate for each table, in the call's order, which holds for this step alone. A table without
  // one learns at its own rate. REQUIRES: all parts of a step have the same rates.
  std::vector<std::optional<float>> learning_rates = {};
};

struct ServerRank {
  std::string address;     // host:port
  std::string device;      // "cpu", or "cuda" and the device's name
  std::string local = {};  // the Unix socket for clients on the rank's host; empty if there is none
  // Names the device whose memory clients on its host can share: a GPU's UUID, as 32 hexadecimal digits, or
  // "host". Empty if the server is older than this member.
  std::string gpu = {};
  // The user id, on the host, of the process that listens at `local`; none if the server is older than this
  // member, or no process listens.
  std::optional<std::uint32_t> local_user = std::nullopt;
};

struct ServerTopology {
  std::string version;
  std::vector<ServerRank> ranks = {};  // in rank order
  std::uint64_t max_message_bytes = 0;
  // The most bytes that one round gathers on a rank; 0 if the server is older than this member.
  std::uint64_t max_round_bytes = 0;
  std::uint64_t instance = 0;      // drawn when the server started
  std::uint64_t epoch = 0;         // the epoch of a session that is drawn now (Session::Options)
  std::uint32_t data_version = 0;  // the version of the ranks' data transport; 0 if there is none
  bool gives_reasons = false;      // whether every refusal of the server has a Reason
};

struct ShardDescription {
  std::uint64_t rows = 0;
  std::uint64_t cells = 0;  // places in the rank's hash table
  std::uint64_t bytes = 0;  // device memory in use
};

// Counts rounds since the table was made, by how bags travelled between ranks; both counts are 0 on one rank.
// A step is one round. Lookups that arrive at about the same time share one round.
struct RoundsDescription {
  std::uint64_t all_bags = 0;    // every rank sent its part of every bag, or received every gradient
  std::uint64_t owned_bags = 0;  // a rank sent, or got the gradients of, only bags of which it owns keys

  friend bool operator==(const RoundsDescription&, const RoundsDescription&) = default;
};

struct TableDescription {
  TableOptions options;
  std::uint64_t steps = 0;                    // optimizer steps applied
  float learning_rate = 0;                    // the rate that the next step will use
  std::vector<ShardDescription> shards = {};  // in rank order
  RoundsDescription rounds = {};
  // The rate that the schedule starts from: the options' learning rate, or the rate last set. 0 if the server
  // is older than this member.
  float base_learning_rate = 0;
  // Drawn when the table was made; 0 if the server is older than this member.
  std::uint64_t generation = 0;
  // Rows that went, on all ranks, since the server's start or the table's load: those that batches or
  // EvictRows have evicted, and those that have expired.
  std::uint64_t evicted_rows = 0;
  std::uint64_t expired_rows = 0;
  // A table with an admission says how many occurrences of keys in pushes got no row, since then, and how
  // many keys without a row it counts now; with a Bloom counter, which does not know that, how many of the
  // counter's blocks have counted.
  std::uint64_t refused_keys = 0;
  std::uint64_t candidates = 0;
  std::uint64_t counter_blocks = 0;
  // Rows that keys got, on all ranks, since then.
  std::uint64_t new_rows = 0;
  // The ages of the rows that batches evicted because the table was full, on all ranks, since then. All rows
  // of the last such eviction were at least `youngest_evicted_age` steps old.
  Quantiles evicted_ages = {};
  std::uint64_t youngest_evicted_age = 0;
  // If asked for, of a table that keeps scores: the ages of its rows, and with a score that counts
  // occurrences the counts.
  Quantiles ages = {};
  Quantiles counts = {};

  std::uint64_t rows() const;
};

// A digest of a table's keys, rows, optimizer state and steps, independent of which rank holds which row.
struct TableDigest {
  std::string digest;  // 32 hexadecimal digits
  std::uint64_t rows = 0;
  std::uint64_t steps = 0;

  friend bool operator==(const TableDigest&, const TableDigest&) = default;
};

// Says which rows of a table EvictRows removes.
struct RowsToEvict {
  enum class Which : std::uint8_t {
    kAllBut,   // those with the lowest scores, until `number` rows are left
    kBelow,    // those with a score below `number` (docs/semantics.md)
    kExpired,  // those that have expired; `number` is ignored
  };
  Which which = Which::kExpired;
  std::uint64_t number = 0;
};

// Says why rows went.
enum class EvictedBy : std::uint8_t {
  kFullTable,   // a batch needed room in a table that evicts
  kTimeToLive,  // the rows expired
  kRequest,     // EvictRows asked for fewer rows
  kOther,       // the server is newer than this client, and has a reason that the client does not know
};

// The keys that one round removed from a table, on all ranks. Such a key has no row after the round, unless
// the round was one of lookups, which may evict several times, and give a key a row again.
struct EvictedKeys {
  std::uint64_t round = 0;
  EvictedBy by = EvictedBy::kFullTable;
  std::vector<Key> keys;  // in no order
};

// The keys of a table that were evicted or have expired.
struct EvictedRounds {
  std::vector<EvictedKeys> rounds;   // ascending; rounds that removed none are left out
  std::uint64_t complete_after = 0;  // `rounds` has all keys that went in later rounds, up to through_round
  // Keys that went after the caller's EvictedSince::round may be missing; else complete_after is that round.
  bool gap = false;
  std::uint64_t through_round = 0;  // the last round that the answer is about
  std::uint64_t instance = 0;       // of the server that answers
  std::uint64_t generation = 0;     // the table's

  std::uint64_t keys() const;  // the number of keys
};

// Says from where on Evicted lists keys: an earlier answer's through_round and instance.
struct EvictedSince {
  std::uint64_t round = 0;  // the last round whose keys the caller has seen; 0: none
  // The rounds of a server that has started again may have numbers that were used before. With the instance,
  // the answer then has a gap. 0: not compared.
  std::uint64_t instance = 0;
};

struct TableCreation {
  TableOptions options;  // with every default filled in; those in force if an existing table was altered
  bool created = false;  // false: the same table existed already
};

struct AlterationOutcome {
  TableOptions options;  // in force now
  bool altered = false;  // false: they were in force before
};

struct SessionTable {
  std::string table;            // empty for steps of several tables
  std::uint64_t last_step = 0;  // the largest number of its applied steps
};

// Describes what the server knows of a session.
struct SessionDescription {
  bool known = false;  // whether the server knows an applied step of the session
  // The largest number of its applied steps; 0 if none is known. If pushes were in flight side by side,
  // smaller numbers may be missing.
  std::uint64_t last_step = 0;
  std::uint64_t epoch = 0;  // the latest epoch that its applied steps carried
  // The session is unknown, and the server, which has forgotten sessions of its epoch, would refuse its
  // steps.
  bool may_be_forgotten = false;
  std::vector<SessionTable> tables;  // by name, of tables that still exist
  std::uint64_t instance = 0;        // of the server that answers
};

// A checkpoint that SaveCheckpoint or LoadCheckpoint made.
struct CheckpointCreation {
  std::string id;
  bool delta = false;
  std::uint64_t round = 0;  // the checkpoint is the state after this round
  std::uint64_t rows = 0;   // rows that were written: in a delta, those that have changed
  std::uint64_t bytes = 0;  // the size of its files
};

struct TableInCheckpoint {
  std::string name;
  std::uint64_t rows = 0;  // in this checkpoint's own files
};

// A checkpoint in the server's data folder. If its manifest cannot be read, only `id` and `why_not` are set.
struct CheckpointDescription {
  std::string id;
  std::string parent = {};    // the checkpoint before it, which a delta needs; empty for a base
  std::string folds = {};     // for a base compacted from a chain: the chain's last, whose state it has
  std::uint64_t created = 0;  // seconds since 1970
  std::uint64_t round = 0;
  std::uint32_t ranks = 0;  // how many ranks wrote it; any number may read it
  std::vector<TableInCheckpoint> tables = {};
  std::uint64_t rows = 0;
  std::uint64_t bytes = 0;
  bool usable = false;  // whether all files that it needs are there, and of the right size
  std::string why_not = {};
  bool pinned = false;  // whether it stays until it is released
  // True if it stays until another checkpoint is loaded: it was loaded last, or was the newest before that.
  bool kept_for_load = false;
};

// A checkpoint with its chain, folder and manifest.
struct CheckpointDetails {
  CheckpointDescription checkpoint;
  std::vector<std::string> chain = {};  // to restore it from, the base first; empty if it is not usable
  std::string folder = {};              // as the server sees it
  std::string manifest = {};            // the text of its manifest.json
};

struct CheckpointVerification {
  std::vector<std::string> chain = {};  // the checkpoints that were read, the base first
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
};

// One table's part of a call of several tables; the fields mean the same as in Lookup and Push.
struct TableLookup {
  std::string_view table;
  BatchView batch;
  std::span<float> out;
};
struct TablePush {
  std::string_view table;
  BatchView batch;
  std::span<const float> gradients;
};

// Rows of a table, as Export returns them and Import takes them. Row r is keys[r], values[r · dim .. (r + 1)
// · dim) and state[r · state_size ..). `state` is what the optimizer keeps (docs/semantics.md), or is empty.
struct RowsView {
  std::span<const Key> keys;
  std::span<const float> values;
  std::span<const float> state;
};

// The rows of an export as they come, in no particular order. Every row is whole, but all rows belong to one
// step only if no client pushes meanwhile. Ranks send a little ahead, and wait until the caller takes it. The
// destructor ends the export.
// Thread-safety: one thread at a time. It may outlive its Client, and ends with FAILED_PRECONDITION then.
class RowStream {
 public:
  ~RowStream();
  RowStream(RowStream&&) noexcept;
  RowStream& operator=(RowStream&&) noexcept;

  // Waits for the next rows; returns nullopt at the end. The views are valid until the next call. An export
  // that fails does not continue; another export sends all rows again. NOT_FOUND: there is no such table, or
  // it was dropped meanwhile. DEADLINE_EXCEEDED: no rank sent anything within the timeout.
  Result<std::optional<RowsView>> Next();
  // Waits at most `most`, and returns whether Next would return at once.
  bool Wait(std::chrono::milliseconds most);

 private:
  friend class Client;
  class Impl;
  explicit RowStream(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class Client {
 public:
  using Done = std::function<void(Status)>;
  using PushDone = std::function<void(Result<std::vector<std::uint64_t>>)>;

  // Learns the ranks from any of `addresses`, host:port (the port is 7070 if absent). Waits for a server that
  // is still starting, until the timeout or until a stop is asked for. INVALID_ARGUMENT: there is no address,
  // or one is not host:port, or an option is out of its bounds.
  static Result<Client> Connect(const std::vector<std::string>& addresses, const ClientOptions& options = {},
                                const std::stop_token& stop = {});

  // Closes the client.
  ~Client();
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;

  // Ends every call in flight, and every later one, with FAILED_PRECONDITION. Every callback has run when
  // Close returns. Closing again does nothing. REQUIRES: not called from a callback.
  void Close();

  // --- tables

  // Makes a table on every rank. Nothing changes if the same table exists already. ALREADY_EXISTS: the table
  // exists with other options. INVALID_ARGUMENT names the option. RESOURCE_EXHAUSTED: there is no memory for
  // the table.
  Result<TableCreation> CreateTable(const TableOptions& options, const CallOptions& call = {});
  // Drops a table and its rows. NOT_FOUND: there is no such table.
  Status DropTable(std::string_view table, const CallOptions& call = {});
  // Lists all tables, sorted by name.
  Result<std::vector<TableOptions>> ListTables(const CallOptions& call = {});
  // Describes a table, with the ages of its rows if `with_ages`. NOT_FOUND: there is no such table.
  Result<TableDescription> DescribeTable(std::string_view table, const CallOptions& call = {},
                                         bool with_ages = false);
  // Computes a table's digest. Equal tables have equal digests, on any number of ranks. NOT_FOUND: there is
  // no such table.
  Result<TableDigest> Digest(std::string_view table, const CallOptions& call = {});
  // Sets the learning rate from the table's next step on. NOT_FOUND: there is no such table. INVALID_ARGUMENT
  // unless the rate is finite and above 0.
  Status SetLearningRate(std::string_view table, float learning_rate, const CallOptions& call = {});
  // Gives a table other options: max_rows, eviction, time to live, admission. Again changes nothing.
  // CreateTable finds the table by these options, and by those that it was made with. NOT_FOUND: there is no
  // such table. INVALID_ARGUMENT names the option. FAILED_PRECONDITION: the table has more rows than the new
  // max_rows. RESOURCE_EXHAUSTED: there is no memory. In each case nothing has changed.
  Result<AlterationOutcome> AlterTable(std::string_view table, const TableAlteration& alteration,
                                       const CallOptions& call = {});
  // Removes rows by their scores, and returns how many went, on all ranks. If the connection breaks, rows may
  // have gone. NOT_FOUND: there is no such table. FAILED_PRECONDITION: it neither evicts nor has a time to
  // live. RESOURCE_EXHAUSTED: no memory, or no room in the journal; no row has gone.
  Result<std::uint64_t> EvictRows(std::string_view table, const RowsToEvict& rows,
                                  const CallOptions& call = {});
  // Lists the keys of a table that were evicted or have expired since a round, on all ranks. Each rank keeps
  // the latest limits.max_evicted_mib of them, over all tables, until the server ends; the answer says if
  // keys may be missing. Keys that a client erased are not listed. The keys come a page at a time, each
  // within the timeout; all of them are in memory at once. NOT_FOUND: there is no such table.
  Result<EvictedRounds> Evicted(std::string_view table, const EvictedSince& since = {},
                                const CallOptions& call = {});
  // Returns the server's ranks as they are now. The client uses them from then on, if the server was started
  // again since the client connected; a client that lost its connection asks by itself.
  Result<ServerTopology> Topology(const CallOptions& call = {});
  // Returns each rank's counts since it started, in rank order, once all ranks have answered; they answer
  // without a round. The server's ranks are asked for first, as with Topology.
  Result<std::vector<RankStats>> Stats(const CallOptions& call = {});
  // Says which steps of a session were applied last, so that a trainer that was started again can go on with
  // it: Session({.id = id, .epoch = epoch, .last = last_step}). `epoch` is the session's. A step that was in
  // flight when its trainer ended may be applied after the answer: pushing the same batch again under its
  // number is safe.
  Result<SessionDescription> DescribeSession(std::uint64_t session, std::uint64_t epoch,
                                             const CallOptions& call = {});

  // --- checkpoints, in the server's data folder
  //
  // FAILED_PRECONDITION: the server was started without a data folder (--data).

  // The longest that a call waits for a checkpoint to be written or read, if it names no timeout.
  static constexpr std::chrono::hours kLongCall{24};

  // Writes a checkpoint of all tables while everything goes on, and returns once it exists. A `delta` has the
  // changes since the newest checkpoint, if the server knows them; else all is written. Rows are rounded to
  // `value_type` in the checkpoint; optimizers' state is not. If the call ends early, the checkpoint goes on,
  // and is listed once it exists. A broken connection is tried again for the client's own timeout from the
  // call's begin.
  // While another checkpoint is written and verified, the call waits for that. RESOURCE_EXHAUSTED: there is
  // no memory for it, the disk is full or takes rows too slowly, or too many such calls wait. INTERNAL: it
  // could not be written.
  Result<CheckpointCreation> SaveCheckpoint(bool delta = false, DataType value_type = DataType::kFloat32,
                                            const CallOptions& call = {});
  // Lists the checkpoints in the data folder, the newest first, then those whose manifest cannot be read.
  Result<std::vector<CheckpointDescription>> ListCheckpoints(const CallOptions& call = {});
  // Describes a checkpoint. NOT_FOUND: there is none. DATA_LOSS: its manifest is damaged. RESOURCE_EXHAUSTED:
  // its manifest is longer than a message may be.
  Result<CheckpointDetails> DescribeCheckpoint(std::string_view id, const CallOptions& call = {});
  // Makes a rank read every file of a checkpoint back, and of those that it builds on, and compare checksums.
  // The rank stops if the call ends early. NOT_FOUND: there is no such checkpoint. DATA_LOSS: it cannot be
  // restored; the message names the file. RESOURCE_EXHAUSTED: the rank is verifying another one.
  Result<CheckpointVerification> VerifyCheckpoint(std::string_view id, const CallOptions& call = {});
  // Replaces all tables and names of steps of the server by the checkpoint's, and returns the new checkpoint
  // that has them, once that exists. Steps that were applied since are lost. This client does not miss them;
  // other clients whose steps were acknowledged get DATA_LOSS once. The client never tries this call again by
  // itself. UNAVAILABLE, DEADLINE_EXCEEDED, CANCELLED: the load may have happened or goes on; ListCheckpoints
  // shows the new checkpoint. NOT_FOUND: there is no such checkpoint. FAILED_PRECONDITION: it cannot be
  // restored; the message names the file. RESOURCE_EXHAUSTED: there is no memory for it beside the present
  // tables. INTERNAL: some rank could not read it. After the last four nothing has changed, unless the
  // message says that it is loaded and could not be saved.
  // With `tables`, only the checkpoint's tables of these names replace the server's, or come back if they
  // were dropped. All other tables stay, and so do names of steps: a step that a table lost is not applied
  // again by its old name. NOT_FOUND: the checkpoint has no such table. INVALID_ARGUMENT: one comes twice.
  // The checkpoint, and the newest one before the call, stay until another one is loaded (durability.keep).
  // With `rows_as`, the tables keep rows as that type from then on: rows of another one are rounded to
  // nearest, and what would be infinite becomes the largest number. INVALID_ARGUMENT: a table's initial
  // values would not fit the type.
  Result<CheckpointCreation> LoadCheckpoint(std::string_view id, std::span<const std::string> tables = {},
                                            const CallOptions& call = {},
                                            const std::optional<RowType>& rows_as = {});
  // Pins a checkpoint: it stays with its chain until it is released, however many newer ones there are.
  // NOT_FOUND: there is no such checkpoint. DATA_LOSS: it cannot be restored. RESOURCE_EXHAUSTED: no more may
  // be pinned.
  Status PinCheckpoint(std::string_view id, const CallOptions& call = {});
  // Unpins a checkpoint: newer ones may replace it from then on. NOT_FOUND: there is no such checkpoint.
  Status ReleaseCheckpoint(std::string_view id, const CallOptions& call = {});
  // Makes a rank fold a delta's chain into a new base of the same state, and returns the base. The rank
  // stops, and leaves no files, if the call ends early. NOT_FOUND: there is no such checkpoint.
  // FAILED_PRECONDITION: it is a base. ALREADY_EXISTS: it was folded before. DATA_LOSS: it cannot be
  // restored. RESOURCE_EXHAUSTED: the rank folds or verifies another one, or the disk is full.
  Result<CheckpointDescription> CompactCheckpoint(std::string_view id, const CallOptions& call = {});

  // --- any method of service Admin (proto/slotwise/v1/admin.proto)

  // Calls a method by its name ("DescribeTable") with the JSON of its request, as protobuf writes JSON, and
  // returns the JSON of its reply, with the fields' own names. The methods above do the same with C++'s
  // types. Only `rank` is asked, or any rank if it is nullopt. INVALID_ARGUMENT: there is no such method, or
  // the text is no JSON of its request.
  Result<std::string> Ask(std::string_view method, const std::string& request, const CallOptions& call = {},
                          std::optional<std::size_t> rank = std::nullopt);

  // Returns the options of a table that this client has used or described; nullopt if the client does not
  // know them, or has forgotten them after an error.
  std::optional<TableOptions> KnownTable(std::string_view table) const;
  // Forgets the options of a table: they are asked for again when they are next needed.
  void ForgetTable(std::string_view table);

  // --- batches
  //
  // `batch` is samples · slots bags of keys. With empty `offsets`, every bag has one key. `weights`, if not
  // empty, hold one float32 a key. The arrays must stay alive and unchanged until the call is answered. A
  // call is a list of tables; Lookup and Push are calls of one. A callback is called once, from one of the
  // client's threads, or from the caller's thread if there was nothing to send. It must not block, and must
  // not call the methods here without Async, because those block.

  // Writes the pooled rows of every bag to `out`, float32 [samples][slots · dim]; after an error the contents
  // of `out` are unspecified. INVALID_ARGUMENT: the batch is malformed or `out` has the wrong size; the
  // message names field and value. NOT_FOUND: there is no such table. RESOURCE_EXHAUSTED: the table is full
  // (kTrain), or one sample is too large. The server refuses a request whole. A large lookup is cut into
  // several requests, and others of them may have been served: their new keys have rows with initial values,
  // and the message says how many samples were answered.
  Status Lookup(std::string_view table, const BatchView& batch, LookupMode mode, std::span<float> out,
                const CallOptions& call = {});

  // Looks up in several tables in one request, which one round serves, or in several requests of some tables
  // each, between which steps of others may be applied. Errors as for Lookup; if one table refuses, the call
  // fails, though others may have got new rows.
  Status Lookup(std::span<const TableLookup> lookups, LookupMode mode, const CallOptions& call = {});
  void LookupAsync(std::span<const TableLookup> lookups, LookupMode mode, Done done,
                   const CallOptions& call = {});

  // --- arrays in the memory of a GPU (slotwise/gpu.h)

  // Returns the names of the GPUs that both this process and a rank of the server have, and whose memory that
  // rank shares, for Gpu::name.
  std::vector<std::string> Gpus() const;
  // Looks up as Lookup does, and answers with each table's rows. FAILED_PRECONDITION: no rank shares that
  // GPU's memory. UNAVAILABLE: the rank has shared all that it may. RESOURCE_EXHAUSTED: there is no room in
  // the shared buffer either. May wait, before it returns, until the arrays are there. `behind` is a push of
  // this client: the lookup is sent once that has ended, and sees it. CANCELLED: that push has failed.
  using GpuRowsDone = std::function<void(Result<std::vector<GpuRows>>)>;
  void LookupOnGpuAsync(std::span<const GpuLookup> lookups, LookupMode mode, const Gpu& gpu, GpuRowsDone done,
                        const CallOptions& call = {},
                        const std::shared_ptr<GpuPushUnderWay>& behind = nullptr);
  // Pushes as Push does. The batches are whole steps of each table; if `step` names parts, all parts but the
  // first are empty.
  std::shared_ptr<GpuPushUnderWay> PushOnGpuAsync(std::span<const GpuPush> pushes,
                                                  const std::optional<Step>& step, const Gpu& gpu,
                                                  PushDone done, const CallOptions& call = {});

  // Sums the gradients of every row and runs the table's optimizer on the sums, once. `gradients`: finite
  // float32 [samples][slots · dim], the loss's gradient with respect to each pooled value. The call is
  // answered once the step is applied, with the table's count of steps, 1 for the first step. A push that
  // names no step (or std::nullopt) is the next step of the client's own session. If the server has forgotten
  // that session, the client draws a new one, and sends a push that named no step again under it, once,
  // unless an earlier try of the push may have arrived. Errors as for Lookup, but a push that is refused has
  // changed nothing, because a step is applied whole, in one round. RESOURCE_EXHAUSTED: also a step larger
  // than a round (limits.max_round_mib). FAILED_PRECONDITION: the step may have been applied before, but the
  // server does not remember (Session); or the step came before with other keys, weights or gradients.
  Result<std::uint64_t> Push(std::string_view table, const BatchView& batch, std::span<const float> gradients,
                             const std::optional<Step>& step = std::nullopt, const CallOptions& call = {});

  // Pushes to several tables in one step, which is applied to all of them or to none. Answers with each
  // table's count of steps, in the order of `pushes`. Errors as for Push, and FAILED_PRECONDITION if a table
  // comes twice.
  Result<std::vector<std::uint64_t>> Push(std::span<const TablePush> pushes, const std::optional<Step>& step,
                                          const CallOptions& call = {});
  void PushAsync(std::span<const TablePush> pushes, const std::optional<Step>& step, PushDone done,
                 const CallOptions& call = {});

  // Returns the table's state that this client's latest lookup of it to end has read; the oldest state if the
  // lookup took several requests. Generation 0 if there was none, or the server does not say.
  LookedUpState LookedUp(std::string_view table) const;

  // Returns the session that numbers the steps of pushes that name none. Its id and epoch change if the
  // server forgets it (Push).
  Session& session();

  // --- rows by key

  // Erases the rows of `keys`; an erased key that comes again gets a new row. Returns how many keys had a row
  // (fewer if an answer was lost and the call was sent again). An erase is not a step. The timeout holds for
  // some megabytes of keys at a time. NOT_FOUND: there is no such table.
  Result<std::uint64_t> Erase(std::string_view table, std::span<const Key> keys,
                              const CallOptions& call = {});

  // Begins an export of all rows, or of the rows of those `keys` that have one. The timeout holds for each
  // wait for a rank. FAILED_PRECONDITION as for every call; RowStream says the other errors.
  Result<RowStream> Export(std::string_view table, bool with_state,
                           std::optional<std::span<const Key>> keys = std::nullopt,
                           const CallOptions& call = {});

  // Writes the rows of keys: an absent key gets a row, and the row of any other key is overwritten. If a key
  // repeats, the last one counts. An empty `state` gives the rows the state of a new row. A table that has
  // applied fewer than `table_steps` steps counts `table_steps` steps from then on, so Adam and schedules
  // continue there; pass the TableDescription::steps of the imported model. Returns how many rows were
  // written. The rows travel in messages of about 1 MiB, spread over the ranks, each of which is applied
  // whole or not at all; the timeout holds for some messages at a time. After an error some messages may have
  // been applied; the error says how many rows were written, and importing the same rows again does no harm.
  // INVALID_ARGUMENT: sizes do not fit the table, or a value is NaN or infinite. RESOURCE_EXHAUSTED: the
  // table is full. NOT_FOUND: there is no such table.
  Result<std::uint64_t> Import(std::string_view table, const RowsView& rows, std::uint64_t table_steps = 0,
                               const CallOptions& call = {});

 private:
  class Impl;
  class BatchCall;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace slotwise

#endif  // SLOTWISE_CLIENT_H_
