// What a rank tells Prometheus: its counts (slotwise/server_stats.h) by Prometheus's conventions, with times
// in seconds and sizes in bytes.
// Thread-safety: a plain value and a free function.
#ifndef SLOTWISE_SERVER_OPS_METRICS_H_
#define SLOTWISE_SERVER_OPS_METRICS_H_

#include <prometheus/metric_family.h>

#include <string>
#include <vector>

#include "slotwise/server_stats.h"

namespace slotwise {

// What does not change while a rank runs.
struct RankFacts {
  std::string version;
  std::string device;
};

// Returns the metrics of one reading. All have the label "rank". Which labels there are does not depend on
// what callers send. A histogram's bounds are powers of two of a nanosecond, at which RankStats' buckets end;
// a duration of just a bound counts as longer.
std::vector<prometheus::MetricFamily> MetricsOf(const RankFacts& facts, const RankStats& stats);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_OPS_METRICS_H_
