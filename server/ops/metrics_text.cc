#include "server/ops/metrics_text.h"

#include <prometheus/client_metric.h>
#include <prometheus/metric_type.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace slotwise {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

std::string Escaped(std::string_view text, bool quoted) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\' || (quoted && c == '"')) escaped += '\\';
    escaped += c == '\n' ? "\\n" : std::string(1, c);
  }
  return escaped;
}

// Adds a line NAME{LABELS} VALUE; with `bound`, one more label.
void AddLine(const std::string& name, const ClientMetric& metric, const std::string& bound,
             const std::string& value, std::string& text) {
  std::string labels;
  for (const ClientMetric::Label& label : metric.label) {
    labels += labels.empty() ? "{" : ",";
    labels += label.name + "=\"" + Escaped(label.value, true) + "\"";
  }
  if (!bound.empty()) labels += (labels.empty() ? "{le=\"" : ",le=\"") + bound + "\"";
  text += name + labels + (labels.empty() ? " " : "} ") + value + "\n";
}

void AddHistogram(const std::string& name, const ClientMetric& metric, std::string& text) {
  const ClientMetric::Histogram& histogram = metric.histogram;
  const std::string count = std::to_string(histogram.sample_count);
  AddLine(name + "_count", metric, {}, count, text);
  AddLine(name + "_sum", metric, {}, NumberText(histogram.sample_sum), text);
  for (const ClientMetric::Bucket& bucket : histogram.bucket) {
    AddLine(name + "_bucket", metric, NumberText(bucket.upper_bound), std::to_string(bucket.cumulative_count),
            text);
  }
  AddLine(name + "_bucket", metric, "+Inf", count, text);
}

}  // namespace

std::string NumberText(double value) {
  constexpr double kWhole = 9007199254740992.0;  // 2^53
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  if (std::abs(value) <= kWhole && value == std::trunc(value))
    return std::to_string(static_cast<std::int64_t>(value));
  std::array<char, 64> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

std::string MetricsText(const std::vector<MetricFamily>& families) {
  std::string text;
  for (const MetricFamily& family : families) {
    const char* const type = family.type == MetricType::Counter ? "counter"
                             : family.type == MetricType::Gauge ? "gauge"
                                                                : "histogram";
    text += "# HELP " + family.name + " " + Escaped(family.help, false) + "\n";
    text += "# TYPE " + family.name + " " + type + "\n";
    for (const ClientMetric& metric : family.metric) {
      if (family.type == MetricType::Counter) {
        AddLine(family.name, metric, {}, NumberText(metric.counter.value), text);
      } else if (family.type == MetricType::Gauge) {
        AddLine(family.name, metric, {}, NumberText(metric.gauge.value), text);
      } else {
        AddHistogram(family.name, metric, text);
      }
    }
  }
  return text;
}

}  // namespace slotwise
