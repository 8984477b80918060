// Makes a rank's metrics for Prometheus from its counters (slotwise/server_stats.h, server/counters), by
// Prometheus's conventions: times in seconds, sizes in bytes.
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

// Facts that do not change while a rank runs.
struct RankFacts {
  std::string version;
  std::string device;
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  // This rank's number among this host's ranks, which have neighbouring numbers; their count; and the port of
  // the first one's metrics; 0: each has a free port of its own.
  std::uint32_t local_rank = 0;
  std::uint32_t local_size = 1;
  std::uint16_t first_port = 0;
};

// A rank's counters and measurements at one moment.
struct RankReading {
  RankStats calls = {};
  EngineStats engine = {};
  std::uint64_t device_bytes = 0;       // the device's whole memory
  std::uint64_t device_free_bytes = 0;  // free for all processes
  std::uint64_t for_tables_bytes = 0;   // free for tables
  RefusedAccessCounts refused = {};
  ProcessUsage process = {};
  std::optional<DiskSpace::Reading> disk = {};  // of the data folder
};

// Returns the metrics of one reading. All but those of the process have the label "rank". The only names from
// callers that become labels are those of existing tables. A histogram's bounds are the powers of two in
// nanoseconds at which RankStats' buckets end; a duration that equals a bound counts as longer.
std::vector<prometheus::MetricFamily> MetricsOf(const RankFacts& facts, const RankReading& reading);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_OPS_METRICS_H_
