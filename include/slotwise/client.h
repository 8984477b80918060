// A Slotwise server's client: tables, lookups, pushes, rows by key.
//
//   auto client = slotwise::Client::Connect({"127.0.0.1:7070"});
//   if (!client.ok()) return client.status();
//   client->CreateTable(options);
//   client->Lookup("ads", {keys, offsets}, slotwise::LookupMode::kTrain, pooled);
//   client->Push("ads", {keys, offsets}, gradients);
//
// Batches are cut by samples into parts of 1 to 4 MiB, which travel side by side to all ranks; calls that find a rank
// gone or too busy are sent again, elsewhere, until the timeout. A push is applied once however often it is sent. The
// same batches make tables of the same bytes as with the Python client.
//
// Every call may end with DEADLINE_EXCEEDED or UNAVAILABLE if there was no answer within the timeout (whether a push was
// applied is then not known; pushing again with the same Step is safe), FAILED_PRECONDITION if the client is being
// destroyed or the server is of another version, and INTERNAL. The methods name others.
//
// Thread-safety: any number of threads may use one Client. Not usable in a forked child: connect there.
#ifndef SLOTWISE_CLIENT_H_
#define SLOTWISE_CLIENT_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "slotwise/batch.h"
#include "slotwise/data_type.h"
#include "slotwise/session.h"
#include "slotwise/status.h"
#include "slotwise/table_options.h"
#include "slotwise/types.h"

namespace slotwise {

struct ClientOptions {
  // What every call may take, tries and waits together.
  std::chrono::milliseconds timeout{30'000};
  // Connections to each rank; large batches are spread over them. gRPC gives one connection about one core.
  int channels_per_rank = 2;
  // The client's own threads, which read replies and run callbacks.
  int threads = 2;
  // How values and gradients travel; here they are float32 all the same. Half the bytes for a rounding: data_type.h.
  DataType data_type = DataType::kFloat32;
};

struct ServerRank {
  std::string address;  // host:port
  std::string device;   // "cpu", or "cuda" and the device's name
};

struct ServerTopology {
  std::string version;
  std::vector<ServerRank> ranks = {};  // in rank order
  std::uint64_t max_message_bytes = 0;
};

struct ShardDescription {
  std::uint64_t rows = 0;
  std::uint64_t cells = 0;  // places in the rank's hash table
  std::uint64_t bytes = 0;  // device memory in use
};

// Rounds since the table was made, by how bags travelled between ranks; zeros if there is one. A step is a round; lookups
// that came at about the same time share one.
struct RoundsDescription {
  std::uint64_t all_bags = 0;    // every rank sent its part of every bag, or got every gradient
  std::uint64_t owned_bags = 0;  // only what belongs to bags of which a rank owns keys

  friend bool operator==(const RoundsDescription&, const RoundsDescription&) = default;
};

struct TableDescription {
  TableOptions options;
  std::uint64_t steps = 0;                    // optimizer steps applied
  float learning_rate = 0;                    // what the next step will use
  std::vector<ShardDescription> shards = {};  // in rank order
  RoundsDescription rounds = {};

  std::uint64_t rows() const;
};

// Of a table's keys, rows, optimizer state and steps, wherever they lie.
struct TableDigest {
  std::string digest;  // 32 hexadecimal digits
  std::uint64_t rows = 0;
  std::uint64_t steps = 0;

  friend bool operator==(const TableDigest&, const TableDigest&) = default;
};

struct TableCreation {
  TableOptions options;  // with every default filled in
  bool created = false;  // false: the same table was there already
};

// Rows of a table, as Export gives them and Import takes them: row r is keys[r], values[r · dim .. (r + 1) · dim) and
// state[r · state_size ..). `state` is what the optimizer keeps (docs/semantics.md), or empty.
struct RowsView {
  std::span<const Key> keys;
  std::span<const float> values;
  std::span<const float> state;
};

class Client {
 public:
  using Done = std::function<void(Status)>;
  using PushDone = std::function<void(Result<std::uint64_t>)>;

  // Learns the ranks from any of `addresses`, host:port (without a port, 7070). A server that is still starting is
  // waited for. INVALID_ARGUMENT: no address, or an option that is not above 0.
  static Result<Client> Connect(const std::vector<std::string>& addresses, const ClientOptions& options = {});

  // Ends what is in flight: it is answered FAILED_PRECONDITION, and every callback has run when this returns.
  // REQUIRES: not called from a callback.
  ~Client();
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;

  // --- tables

  // Makes a table on every rank; if the same table is there already, nothing changes.
  // ALREADY_EXISTS: with other options. INVALID_ARGUMENT names the option. RESOURCE_EXHAUSTED: no memory for it.
  Result<TableCreation> CreateTable(const TableOptions& options);
  // Forgets a table and its rows. NOT_FOUND.
  Status DropTable(std::string_view table);
  // By name.
  Result<std::vector<TableOptions>> ListTables();
  // NOT_FOUND.
  Result<TableDescription> DescribeTable(std::string_view table);
  // Equal tables have equal digests, on any number of ranks. NOT_FOUND.
  Result<TableDigest> Digest(std::string_view table);
  // From the table's next step on. NOT_FOUND; INVALID_ARGUMENT unless finite and above 0.
  Status SetLearningRate(std::string_view table, float learning_rate);
  // The server's ranks as they are now; the client goes on with those it connected to.
  Result<ServerTopology> Topology();

  // --- batches
  //
  // `batch` is samples · slots bags of keys; with empty `offsets`, one key a bag; with `weights`, float32, one a key. The arrays must stay as they are
  // until the call is answered. Callbacks and futures are answered once, from a thread of the client's or, if nothing
  // had to be sent, the caller's. A callback must not block, and must not call what blocks: the methods here without
  // Async.

  // Writes the pooled rows of every bag to `out`, float32 [samples][slots · dim]; after an error its contents are
  // unspecified. INVALID_ARGUMENT: the batch is malformed or `out` of a wrong size, with field and value. NOT_FOUND: no
  // such table. RESOURCE_EXHAUSTED: the table is full (kTrain), or one sample too large; nothing was changed.
  Status Lookup(std::string_view table, const BatchView& batch, LookupMode mode, std::span<float> out);
  std::future<Status> LookupAsync(std::string_view table, const BatchView& batch, LookupMode mode,
                                  std::span<float> out);
  void LookupAsync(std::string_view table, const BatchView& batch, LookupMode mode, std::span<float> out,
                   Done done);

  // Sums the gradients of every row and runs the table's optimizer on them, once. `gradients`: finite float32
  // [samples][slots · dim], of the loss by each pooled value. The result, once the step is applied: the table's count
  // of steps, 1 for the first. Without a step: the next of the client's own session.
  // As Lookup, and FAILED_PRECONDITION: the step is too far behind the newest of its session.
  Result<std::uint64_t> Push(std::string_view table, const BatchView& batch,
                             std::span<const float> gradients);
  Result<std::uint64_t> Push(std::string_view table, const BatchView& batch, std::span<const float> gradients,
                             const Step& step);
  std::future<Result<std::uint64_t>> PushAsync(std::string_view table, const BatchView& batch,
                                               std::span<const float> gradients, const Step& step);
  void PushAsync(std::string_view table, const BatchView& batch, std::span<const float> gradients,
                 const Step& step, PushDone done);

  // Names the steps of pushes that name none.
  Session& session();

  // --- rows by key

  // Forgets keys; one that comes again begins anew. The result: how many had a row (fewer than that if an answer was
  // lost and the call sent again). Not a step. NOT_FOUND.
  Result<std::uint64_t> Erase(std::string_view table, std::span<const Key> keys);

  // Calls `take` in this thread with some rows at a time, rank after rank, in no order, until all were seen, or those
  // of `keys` that have a row if `keys` is not empty. The views end with the call; what `take` answers but OK ends the
  // export and is its result. Whole rows, but for all rows of one step nobody may push meanwhile. NOT_FOUND.
  // The timeout holds for each rank's stream. After an error, rows already seen may be seen again by the next try.
  Status Export(std::string_view table, bool with_state, const std::function<Status(const RowsView&)>& take,
                std::span<const Key> keys = {});

  // Gives keys rows: absent ones get one, others are overwritten; of a key that repeats, the last counts. An empty
  // `state` gives them the state of a new row. A table that has applied fewer than `table_steps` steps has applied so
  // many from then on (TableDescription::steps of the model that is imported): Adam and schedules go on there. The
  // result: how many rows were given. Doing it again does no harm.
  // INVALID_ARGUMENT: sizes that do not fit the table, NaN, infinity. RESOURCE_EXHAUSTED: the table is full; rows before
  // those that did not fit may be in. NOT_FOUND.
  Result<std::uint64_t> Import(std::string_view table, const RowsView& rows, std::uint64_t table_steps = 0);

 private:
  class Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace slotwise

#endif  // SLOTWISE_CLIENT_H_
