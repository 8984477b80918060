// Writes metrics as text for Prometheus (version 0.0.4), with the shortest numbers. Other libraries write
// 8.192e-06 as 8.192000000000001e-06, which then names a bucket.
// Thread-safety: free functions.
#ifndef SLOTWISE_SERVER_OPS_METRICS_TEXT_H_
#define SLOTWISE_SERVER_OPS_METRICS_TEXT_H_

#include <prometheus/metric_family.h>

#include <string>
#include <vector>

namespace slotwise {

// Returns the text of counters, gauges and histograms.
std::string MetricsText(const std::vector<prometheus::MetricFamily>& families);

// Returns the shortest text that reads back as `value`; whole numbers up to 2^53 have all their digits.
std::string NumberText(double value);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_OPS_METRICS_TEXT_H_
