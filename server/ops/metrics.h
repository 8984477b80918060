// What a rank tells Prometheus: its counts (slotwise/server_stats.h, server/counters) by Prometheus's
// conventions, with times in seconds and sizes in bytes.
// Thread-safety: a plain value and a free function.
#ifndef SLOTWISE_SERVER_OPS_METRICS_H_
#define SLOTWISE_SERVER_OPS_METRICS_H_

#include <prometheus/metric_family.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/access/access_control.h"
#include "server/counters/engine_stats.h"
#include "server/ops/disk_space.h"
#include "server/ops/process_usage.h"
#include "slotwise/server_stats.h"

namespace slotwise {

// What does not change while a rank runs.
struct RankFacts {
  std::string version;
  std::string device;
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  // Of this host's ranks, which have neighbouring numbers: which it is, how many there are, and the port of
  // the first one's metrics; 0: each has a port of its own.
  std::uint32_t local_rank = 0;
  std::uint32_t local_size = 1;
  std::uint16_t first_port = 0;
};

// What a rank knows of itself at a moment.
struct RankReading {
  RankStats calls = {};
  EngineStats engine = {};
  std::uint64_t device_bytes = 0;       // of the device's memory, of all processes
  std::uint64_t device_free_bytes = 0;  // that can still be taken
  std::uint64_t for_tables_bytes = 0;   // the same, by tables
  RefusedAccessCounts refused = {};
  ProcessUsage process = {};
  std::optional<DiskSpace::Reading> disk = {};  // of the data folder
};

// Returns the metrics of one reading. All but the process's have the label "rank". Of what callers send, only
// names of tables that there are become labels. A histogram's bounds are powers of two of a nanosecond, at
// which RankStats' buckets end; a duration of just a bound counts as longer.
std::vector<prometheus::MetricFamily> MetricsOf(const RankFacts& facts, const RankReading& reading);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_OPS_METRICS_H_
