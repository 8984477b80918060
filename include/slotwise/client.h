// A Slotwise server's client: tables, lookups, pushes, rows by key.
//
//   auto client = slotwise::Client::Connect({"127.0.0.1:7070"});
//   if (!client.ok()) return client.status();
//   client->CreateTable(options);
//   client->Lookup("ads", {keys, offsets}, slotwise::LookupMode::kTrain, pooled);
//   client->Push("ads", {keys, offsets}, gradients);
//
// The client cuts batches by samples into parts of 1 to 4 MiB, which travel side by side to all ranks. If a
// rank is gone or too busy, the client sends the call again to another rank, until the timeout. A push is
// applied once, however often the client sends it. The same batches make tables of the same bytes as with the
// Python client.
//
// Every call may end with DEADLINE_EXCEEDED or UNAVAILABLE if no answer came within the timeout (the caller
// then does not know whether a push was applied; pushing again with the same Step is safe), with
// FAILED_PRECONDITION if the client is being destroyed or the server has another version, and with INTERNAL.
// The methods name other errors.
//
// Thread-safety: any number of threads may use one Client. A forked child cannot use its parent's Client, and
// must connect again.
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
  // The longest that one call may take, all tries and waits together.
  std::chrono::milliseconds timeout{30'000};
  // Connections to each rank. Large batches are spread over them, because gRPC gives one connection about one
  // core.
  int channels_per_rank = 2;
  // The client's own threads, which read replies and run callbacks.
  int threads = 2;
  // The type that values and gradients have on the wire; in the caller's arrays they are always float32. The
  // 16-bit types halve the bytes and round (data_type.h).
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

  std::uint64_t rows() const;
};

// A digest of a table's keys, rows, optimizer state and steps, independent of which rank holds which row.
struct TableDigest {
  std::string digest;  // 32 hexadecimal digits
  std::uint64_t rows = 0;
  std::uint64_t steps = 0;

  friend bool operator==(const TableDigest&, const TableDigest&) = default;
};

struct TableCreation {
  TableOptions options;  // with every default filled in
  bool created = false;  // false: the same table existed already
};

// Rows of a table, as Export gives them and Import takes them. Row r is keys[r], values[r · dim .. (r + 1) ·
// dim) and state[r · state_size ..). `state` is what the optimizer keeps (docs/semantics.md), or is empty.
struct RowsView {
  std::span<const Key> keys;
  std::span<const float> values;
  std::span<const float> state;
};

class Client {
 public:
  using Done = std::function<void(Status)>;
  using PushDone = std::function<void(Result<std::uint64_t>)>;

  // Learns the ranks from any of `addresses`, host:port (the port is 7070 if absent). Waits for a server that
  // is still starting. INVALID_ARGUMENT: there is no address, or an option is not above 0.
  static Result<Client> Connect(const std::vector<std::string>& addresses, const ClientOptions& options = {});

  // Ends every call in flight with FAILED_PRECONDITION. Every callback has run when the destructor returns.
  // REQUIRES: not called from a callback.
  ~Client();
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;

  // --- tables

  // Makes a table on every rank. Nothing changes if the same table exists already. ALREADY_EXISTS: the table
  // exists with other options. INVALID_ARGUMENT names the option. RESOURCE_EXHAUSTED: there is no memory for
  // the table.
  Result<TableCreation> CreateTable(const TableOptions& options);
  // Drops a table and its rows. NOT_FOUND: there is no such table.
  Status DropTable(std::string_view table);
  // Lists all tables, sorted by name.
  Result<std::vector<TableOptions>> ListTables();
  // Describes a table. NOT_FOUND: there is no such table.
  Result<TableDescription> DescribeTable(std::string_view table);
  // Computes a table's digest. Equal tables have equal digests, on any number of ranks. NOT_FOUND: there is
  // no such table.
  Result<TableDigest> Digest(std::string_view table);
  // Sets the learning rate from the table's next step on. NOT_FOUND: there is no such table. INVALID_ARGUMENT
  // unless the rate is finite and above 0.
  Status SetLearningRate(std::string_view table, float learning_rate);
  // Returns the server's ranks as they are now. The client itself keeps using the ranks that it connected to.
  Result<ServerTopology> Topology();

  // --- batches
  //
  // `batch` is samples · slots bags of keys. With empty `offsets`, every bag has one key. `weights`, if not
  // empty, hold one float32 a key. The arrays must stay alive and unchanged until the call is answered.
  // Callbacks and futures are answered once, from one of the client's threads, or from the caller's thread if
  // there was nothing to send. A callback must not block, and must not call the methods here without Async,
  // because those block.

  // Writes the pooled rows of every bag to `out`, float32 [samples][slots · dim]; after an error the contents
  // of `out` are unspecified. INVALID_ARGUMENT: the batch is malformed or `out` has the wrong size; the
  // message names field and value. NOT_FOUND: there is no such table. RESOURCE_EXHAUSTED: the table is full
  // (kTrain), or one sample is too large; nothing was changed.
  Status Lookup(std::string_view table, const BatchView& batch, LookupMode mode, std::span<float> out);
  std::future<Status> LookupAsync(std::string_view table, const BatchView& batch, LookupMode mode,
                                  std::span<float> out);
  void LookupAsync(std::string_view table, const BatchView& batch, LookupMode mode, std::span<float> out,
                   Done done);

  // Sums the gradients of every row and runs the table's optimizer on the sums, once. `gradients`: finite
  // float32 [samples][slots · dim], the loss's gradient with respect to each pooled value. The call is
  // answered once the step is applied, with the table's count of steps, 1 for the first step. A push that
  // names no step is the next step of the client's own session. Errors as for Lookup, and
  // FAILED_PRECONDITION: the step is too far behind the newest step of its session.
  Result<std::uint64_t> Push(std::string_view table, const BatchView& batch,
                             std::span<const float> gradients);
  Result<std::uint64_t> Push(std::string_view table, const BatchView& batch, std::span<const float> gradients,
                             const Step& step);
  std::future<Result<std::uint64_t>> PushAsync(std::string_view table, const BatchView& batch,
                                               std::span<const float> gradients, const Step& step);
  void PushAsync(std::string_view table, const BatchView& batch, std::span<const float> gradients,
                 const Step& step, PushDone done);

  // Returns the session that names the steps of pushes that name none.
  Session& session();

  // --- rows by key

  // Erases the rows of `keys`; an erased key that comes again gets a new row. Returns how many keys had a row
  // (fewer if an answer was lost and the call was sent again). An erase is not a step. NOT_FOUND: there is no
  // such table.
  Result<std::uint64_t> Erase(std::string_view table, std::span<const Key> keys);

  // Calls `take` in the caller's thread with some rows at a time, rank after rank, in no particular order,
  // until `take` has seen every row, or, if `keys` is not empty, every row of `keys`. The views are valid
  // during the call of `take` only. If `take` returns an error, the export ends with that error. Every row is
  // whole, but all rows belong to one step only if nobody pushes meanwhile. The timeout holds for each rank's
  // stream. An export that fails after `take` saw rows does not continue; exporting again shows them again.
  // NOT_FOUND: there is no such table.
  Status Export(std::string_view table, bool with_state, const std::function<Status(const RowsView&)>& take,
                std::span<const Key> keys = {});

  // Writes the rows of keys: an absent key gets a row, and the row of any other key is overwritten. If a key
  // repeats, the last one counts. An empty `state` gives the rows the state of a new row. A table that has
  // applied fewer than `table_steps` steps counts `table_steps` steps from then on, so Adam and schedules
  // continue there; pass the TableDescription::steps of the imported model. Returns how many rows were given.
  // Importing the same rows again does no harm. INVALID_ARGUMENT: sizes do not fit the table, or a value is
  // NaN or infinite. RESOURCE_EXHAUSTED: the table is full; the rows before those that did not fit may be in
  // the table. NOT_FOUND: there is no such table.
  Result<std::uint64_t> Import(std::string_view table, const RowsView& rows, std::uint64_t table_steps = 0);

 private:
  class Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace slotwise

#endif  // SLOTWISE_CLIENT_H_
