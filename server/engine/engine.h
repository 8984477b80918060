// Engine: runs rounds. In each round the ranks agree without a leader on one operation on one table and do it
// together.
//
// A rank's request queue takes requests from any thread. Run() loops: it proposes the new requests in this
// rank's request queue, all-gathers the proposals, lets the scheduler (the same pure state machine on every
// rank) decide, runs the round, and answers. On a device with memory of its own rounds overlap (stage.h). An
// idle engine sleeps until its request queue or another rank wakes it.
//
// Thread-safety: any thread may call Submit, ListTables, FindTable and RequestStop; one thread calls Run.
// Errors: every request is answered exactly once, through its `done`. Run throws std::runtime_error if the
// device or the collective breaks, or if a round's arrays find no memory; the process should then end all
// ranks.
#ifndef SLOTWISE_SERVER_ENGINE_ENGINE_H_
#define SLOTWISE_SERVER_ENGINE_ENGINE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/shard.h"
#include "server/collective/collective.h"
#include "server/collective/exchange.h"
#include "server/counters/engine_stats.h"
#include "server/durability/checkpoints.h"
#include "server/durability/ledger.h"
#include "server/engine/array_pool.h"
#include "server/engine/clock.h"
#include "server/engine/observer.h"
#include "server/engine/operations/push.h"
#include "server/engine/output_distribution.h"
#include "server/engine/rank_limit.h"
#include "server/engine/recovery.h"
#include "server/engine/schedule/request.h"
#include "server/engine/tables.h"

namespace slotwise {

struct OperationTraits;

// Equal on every rank.
struct EngineOptions {
  // One round gathers at most these bytes on a rank: keys, weights, offsets, and pooled values or gradients.
  // No step may be larger.
  std::uint64_t max_round_bytes = std::uint64_t{512} << 20;
  // The arrays of this rank's requests take at most these bytes, from the request queue until the device is
  // done with them, and so do the answers, until the caller lets them go. Parts of the step that has waited
  // longest, and the requests that came with these parts, may take as many bytes again and a round more, so
  // that the step can be completed. The engine keeps host memory for later arrays, as long as the kept memory
  // and the arrays in use are no more than these bytes and two rounds.
  std::uint64_t max_queue_bytes = std::uint64_t{1} << 30;
  // A waiting lookup or push is charged these bytes beside its arrays: about the memory that it takes here.
  std::uint64_t request_bytes = 2048;
  // A rank proposes about as many bytes of requests at once as the ranks serve in a moment
  // (admission_quantum.h), but at least these. Ranks may differ.
  std::uint64_t least_quantum_bytes = std::uint64_t{64} << 10;
  std::size_t max_tables = 1024;
  // Bounds the keys of evicted and expired rows that this rank remembers (evicted_log.h). Ranks may differ.
  std::uint64_t max_evicted_bytes = std::uint64_t{16} << 20;
  // Bounds the applied steps that the ranks remember.
  LedgerLimits ledger = {};
  // Drawn at each start of a server, so that no two starts have the same. Tables' generations derive from it.
  std::uint64_t instance = 1;
  // Whether a rank that is alone polls for a while after a batch from a GPU's shared buffer. Set where there
  // are processors for polling.
  bool stays_awake = false;
  // A step is dropped this long after its first part came, if parts are still missing.
  std::chrono::milliseconds step_timeout{60'000};
  // Bounds the rows of a table that one rank holds.
  RankLimit rank_limit = {};
  // How bags travel between ranks.
  DistributionOptions distribution = {};
  // Operations that a test adds to a server's own. They outlive the engine.
  std::span<const OperationTraits> more_operations = {};
};

// The work of an engine: begun, queued and pending.
struct EngineLoad {
  std::uint64_t rounds = 0;            // begun so far
  std::uint64_t queued_requests = 0;   // they wait to be proposed to other ranks
  std::uint64_t pending_requests = 0;  // proposed and not answered, as of the last decision
  std::uint64_t queue_bytes = 0;       // charged for requests and replies
  std::uint64_t max_queue_bytes = 0;
};

class Engine {
 public:
  // Collective. Every argument outlives the engine. Until the engine is gone, only the thread of Run uses
  // `device`, `collective` and `exchanges`; arrays() and Stats() are the exceptions. `secret` is this rank's
  // own, and seeds the placement in its hash tables.
  Engine(Device& device, Collective& collective, const Exchanges& exchanges, const HashSecret& secret,
         const EngineOptions& options, Clock& clock = SystemClock(), EngineObserver* observer = nullptr);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Recovers the state from the data folder, and from then on records changes there. Collective; called
  // before Run, or not at all. DATA_LOSS: the folder's content cannot be trusted; the message names the file.
  // Either all ranks get an error or none does.
  Result<Recovered> Recover(const DurabilityOptions& durability);

  // Serves rounds until some rank calls RequestStop; then finishes the submitted requests, drops incomplete
  // steps, and returns on every rank. Collective: every rank calls it once.
  void Run();

  // Returns how long Run has been busy with one decision and its round, or with an unbroken series of rounds
  // about whole tables (summaries, lists of keys, new tables); 0 while the engine is idle. For any thread.
  Clock::TimePoint::duration BusyFor() const;

  // Returns the load without waiting for a round. For any thread.
  EngineLoad Load() const;
  // Returns the engine's counters. REQUIRES: Recover has returned, if it is called.
  EngineStats Stats() const;

  // Returns the total time that this rank has waited for others in collectives. For any thread.
  std::chrono::nanoseconds WaitedInCollectives() const;

  // Asks all ranks to stop. From now on Submit refuses requests as UNAVAILABLE.
  void RequestStop();

  // Queues a request, and calls its `done` once with the outcome; the call comes from within Submit if the
  // request is refused at once. RESOURCE_EXHAUSTED: the request is larger than a round may be; with a time to
  // try again: the request queue is full. UNAVAILABLE: the engine is stopping. DEADLINE_EXCEEDED: the
  // caller's deadline has passed. NOT_FOUND: the table was dropped in the meantime. INVALID_ARGUMENT: the
  // client may still write the batch's arrays.
  void Submit(Request request);
  // Queues several requests. The engine refuses each one that is invalid or too large; the request queue
  // takes all of the others or none.
  void Submit(std::vector<Request> requests);

  // Returns after what time a refused caller may try again: the time until half of the request queue has
  // drained, at the recent rate. For any thread.
  std::chrono::milliseconds RetryAfter();

  // Returns the pool of memory that the device reads fastest, best for requests' arrays. For any thread.
  ArrayPool& arrays();
  // Returns the device, for the calls on it that any thread may make.
  Device& device();

  // Returns EngineOptions::instance.
  std::uint64_t instance() const;

  // Returns the first lost step of a table, among its steps up to the acknowledged one; the table still has
  // the given `generation`. 0: no step was lost, or the loss is unknown, because the client names no step or
  // the server has no data folder. REQUIRES: Recover has returned, if it is called. For any thread.
  std::uint64_t LostFrom(std::uint64_t generation, const Acknowledged& acknowledged) const;
  // Returns the epoch that a session drawn now carries (ledger.h). For any thread.
  std::uint64_t epoch() const;

  // Return the tables that exist after the last round.
  std::optional<TableInfo> FindTable(std::string_view name) const;
  std::vector<TableInfo> ListTables() const;

  // Returns the folder of checkpoints; nothing if Recover was not called, or failed. For any thread, once
  // Recover has returned. The server may remove a checkpoint while a thread reads it.
  std::optional<Checkpoints> checkpoints() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_ENGINE_H_
