// Engine: runs rounds. In each round the ranks agree without a leader on one operation on one table and do it
// together.
//
// A rank's request queue takes requests from any thread. Run() loops: it proposes what is new in this rank's
// request queue, all-gathers the proposals, lets the scheduler (the same pure state machine on every rank)
// decide, runs the round, and answers. On a device with memory of its own rounds overlap (stage.h). An idle
// engine sleeps until its request queue or another rank wakes it.
//
// Thread-safety: Submit, ListTables, FindTable and RequestStop from any thread; Run on one.
// Errors: every request is answered exactly once, through its `done`. Run throws std::runtime_error if the
// device or the transport breaks, or there is no memory for a round's arrays; the process should then end all
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

class RoomMaker;

struct OperationTraits;

// Equal on every rank.
struct EngineOptions {
  // One round gathers at most these bytes on a rank: keys, weights, offsets, and pooled values or gradients.
  // No step may be larger.
  std::uint64_t max_round_bytes = std::uint64_t{512} << 20;
  // The arrays of this rank's requests take at most these bytes, from the request queue until the device is
  // done with them, and so do the answers, until the caller lets them go. Parts of the step that has waited
  // longest, and the requests that they came with, may take as much again and a round, so that the step can
  // be completed. The engine keeps host memory for arrays to come, as long as that and the arrays in use are
  // no more than these bytes and two rounds.
  std::uint64_t max_queue_bytes = std::uint64_t{1} << 30;
  // What a waiting lookup or push is charged beside its arrays: about what it takes in this process.
  std::uint64_t request_bytes = 2048;
  // A rank proposes about as much of its callers' requests at once as the ranks serve in a moment
  // (admission_quantum.h), and at least so many bytes. Ranks may differ.
  std::uint64_t least_quantum_bytes = std::uint64_t{64} << 10;
  std::size_t max_tables = 1024;
  // Of the applied steps that the ranks remember.
  LedgerLimits ledger = {};
  // No other start of a server has the same; the generations of tables come from it.
  std::uint64_t instance = 1;
  // Whether a rank that is alone waits awake for a while after a batch that came by a GPU's memory, because
  // there are processors for it.
  bool stays_awake = false;
  // A step is dropped this long after its first part came, if parts are still missing.
  std::chrono::milliseconds step_timeout{60'000};
  // What one rank may hold of a table.
  RankLimit rank_limit = {};
  // How bags travel between ranks.
  DistributionOptions distribution = {};
  // Operations beside a server's own: a test's. They outlive the engine.
  std::span<const OperationTraits> more_operations = {};
  // What gets a full table room for new keys: a test's, on every rank. It outlives the engine. Null: a full
  // table refuses them.
  RoomMaker* room_maker = nullptr;
};

// What an engine has to do.
struct EngineLoad {
  std::uint64_t rounds = 0;            // that it has begun
  std::uint64_t queued_requests = 0;   // that wait to be proposed to other ranks
  std::uint64_t pending_requests = 0;  // that have no answer yet, as of the last decision
  std::uint64_t queue_bytes = 0;       // that requests and replies are charged
  std::uint64_t max_queue_bytes = 0;
};

class Engine {
 public:
  // Collective. Every argument outlives the engine. `device`, `collective` and `exchanges` are used by the
  // thread of Run only until the engine is gone, but for what arrays() asks of the device and Stats() of
  // exchanges. Places in this rank's hash tables come from `secret`; other ranks have others.
  Engine(Device& device, Collective& collective, const Exchanges& exchanges, const HashSecret& secret,
         const EngineOptions& options, Clock& clock = SystemClock(), EngineObserver* observer = nullptr);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Collective; before Run, or not at all. Brings back what the data folder has, and from then on keeps there
  // what changes. DATA_LOSS: what is there cannot be trusted; the message names the file. All ranks have an
  // error, or none has.
  Result<Recovered> Recover(const DurabilityOptions& durability);

  // Serves rounds until some rank calls RequestStop; then finishes what was submitted, drops incomplete
  // steps, and returns on every rank. Collective: every rank calls it once.
  void Run();

  // Returns for how long Run has been at the same decision and its round, or at rounds that follow each other
  // and are each about a whole table (summaries, lists of keys, new tables); 0 while there is nothing to do.
  // For any thread.
  Clock::TimePoint::duration BusyFor() const;

  // Returns what there is to do. Does not wait for a round. For any thread.
  EngineLoad Load() const;
  // Returns what the engine has counted. REQUIRES: Recover has returned, if it is called.
  EngineStats Stats() const;

  // Returns for how long this rank has waited for others in collectives, in all. For any thread.
  std::chrono::nanoseconds WaitedInCollectives() const;

  // Asks all ranks to stop. From now on Submit refuses requests as UNAVAILABLE.
  void RequestStop();

  // Queues a request, whose `done` is called once with its outcome, here if the request is refused at once.
  // RESOURCE_EXHAUSTED: the request is larger than a round may be; with a time to try again: the request
  // queue is full. UNAVAILABLE: the engine is stopping. DEADLINE_EXCEEDED: the caller's has passed.
  // NOT_FOUND: the table was dropped meanwhile. INVALID_ARGUMENT: the client may still write the batch's
  // arrays.
  void Submit(Request request);
  // Queues several requests. Those that fit are taken by the request queue together or not at all; the others
  // are refused each.
  void Submit(std::vector<Request> requests);

  // Returns when somebody for whom this rank has no room may ask again: once half of what waits in its
  // request queue has gone, at the rate of late. For any thread.
  std::chrono::milliseconds RetryAfter();

  // Returns the pool of the memory that the device reads fastest: requests' arrays had better lie there. For
  // any thread.
  ArrayPool& arrays();
  // Returns what was given, for what any thread may ask of it.
  Device& device();

  // Returns what was given: the start of the server.
  std::uint64_t instance() const;

  // Returns the first step that was lost of those up to the acknowledged one of a table, whose `generation`
  // is still the same; 0: none, or it is unknown, because the client does not say, or the server has no data
  // folder. REQUIRES: Recover has returned, if it is called. For any thread.
  std::uint64_t LostFrom(std::uint64_t generation, const Acknowledged& acknowledged) const;
  // Returns the epoch that a session drawn now carries (ledger.h). For any thread.
  std::uint64_t epoch() const;

  // Return the tables that exist after the last round.
  std::optional<TableInfo> FindTable(std::string_view name) const;
  std::vector<TableInfo> ListTables() const;

  // Returns the folder of checkpoints; nothing if Recover was not called, or failed. For any thread, once
  // Recover has returned; what is read may be removed meanwhile.
  std::optional<Checkpoints> checkpoints() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_ENGINE_H_
