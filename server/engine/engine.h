// Engine: runs rounds. Each round, the ranks agree without a leader on one operation on one table and do it together.
//
// A rank's inbox takes requests from any thread. Run() loops: announce what is new in my inbox, all-gather the
// announcements, let the agenda (the same pure state machine on every rank) pick the round, do it, answer. On a device with
// memory of its own rounds overlap (stage.h). An idle engine sleeps until its inbox or another rank wakes it.
//
// Thread-safety: Submit, ListTables, FindTable and RequestStop from any thread; Run on one.
// Errors: every request is answered exactly once, through its `done`. Run throws std::runtime_error if the device or
// the transport breaks, or there is no memory for a round's arrays; the process should then end all ranks.
#ifndef SLOTWISE_SERVER_ENGINE_ENGINE_H_
#define SLOTWISE_SERVER_ENGINE_ENGINE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "kernels/shard.h"
#include "server/collective/collective.h"
#include "server/collective/exchange.h"
#include "server/engine/array_pool.h"
#include "server/engine/clock.h"
#include "server/engine/observer.h"
#include "server/engine/request.h"
#include "server/engine/tables.h"
#include "server/engine/travel_way.h"

namespace slotwise {

// Equal on every rank.
struct EngineOptions {
  // The most that one round gathers: bytes of bags · dim floats, and of keys. Also the largest step.
  std::uint64_t max_round_bytes = std::uint64_t{512} << 20;
  // The most that waits in this rank's inbox, in bytes of keys, offsets and gradients; beside it, one step's parts, so that
  // it can be completed. As much of host memory, and two rounds' more, is kept for arrays to come.
  std::uint64_t max_inbox_bytes = std::uint64_t{1} << 30;
  // A step is dropped this long after its first part came, if parts are still missing.
  std::chrono::milliseconds step_timeout{60'000};
  // How bags travel between ranks.
  TravelOptions travel = {};
};

class Engine {
 public:
  // Collective. Every argument outlives the engine. `device`, `collective` and `exchanges` are used by the thread of Run only
  // until the engine is gone, but for what arrays() asks of the device.
  Engine(Device& device, Collective& collective, const Exchanges& exchanges, const EngineOptions& options,
         Clock& clock = SystemClock(), EngineObserver* observer = nullptr);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Serves rounds until some rank calls RequestStop; then finishes what was submitted, drops incomplete steps, and
  // returns on every rank. Collective: every rank calls it once.
  void Run();

  // Asks all ranks to stop. From now on Submit answers UNAVAILABLE.
  void RequestStop();

  // Queues a request; its `done` tells the rest. RESOURCE_EXHAUSTED: larger than a round may be. UNAVAILABLE: the
  // engine is stopping, or its inbox is full. NOT_FOUND: the table was dropped meanwhile.
  // INVALID_ARGUMENT: the client may still write the batch's arrays.
  void Submit(Request request);
  // The same for several, which the inbox takes together or not at all.
  void Submit(std::vector<Request> requests);

  // Where requests' arrays had better lie. For any thread.
  ArrayPool& arrays();

  // The tables there are, as of the last round.
  std::optional<TableInfo> FindTable(std::string_view name) const;
  std::vector<TableInfo> ListTables() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_ENGINE_H_
