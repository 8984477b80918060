// EngineStats: one reading of all counters of a rank's engine.
// Thread-safety: a plain value.
#ifndef SLOTWISE_SERVER_COUNTERS_ENGINE_STATS_H_
#define SLOTWISE_SERVER_COUNTERS_ENGINE_STATS_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "server/counters/durability_counters.h"
#include "server/counters/exchange_counters.h"
#include "server/counters/table_counters.h"

namespace slotwise {

struct EngineStats {
  std::vector<TableStats> tables = {};              // by name
  std::uint64_t repeated_parts = 0;                 // parts of steps that came again, on this rank
  std::uint64_t incomplete_steps = 0;               // waiting for parts; equal on all ranks
  std::chrono::nanoseconds in_collectives{0};       // the engine's wait for other ranks
  ExchangeStats exchanges = {};                     // of arrays between ranks; none with one rank
  std::optional<JournalStats> journal = {};         // if there is a journal
  std::optional<CheckpointStats> checkpoints = {};  // if there is a data folder
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_COUNTERS_ENGINE_STATS_H_
