#include "server/ops/metrics.h"

#include <prometheus/client_metric.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "slotwise/status.h"

namespace slotwise {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

// Histograms have bounds from 8 µs to 8.6 s.
constexpr int kFirstBound = 13;
constexpr int kLastBound = 33;

double Seconds(std::uint64_t ns) { return static_cast<double>(ns) / 1e9; }

ClientMetric::Histogram HistogramOf(const DurationStats& durations) {
  ClientMetric::Histogram histogram;
  histogram.sample_sum = Seconds(durations.sum_ns);
  std::size_t bucket = 0;
  for (int power = kFirstBound; power <= kLastBound; ++power) {
    const std::uint64_t bound = std::uint64_t{1} << power;
    for (; bucket < durations.buckets.size() && DurationStats::FirstOf(bucket) < bound; ++bucket) {
      histogram.sample_count += durations.buckets[bucket];
    }
    histogram.bucket.push_back({histogram.sample_count, Seconds(bound)});
  }
  for (; bucket < durations.buckets.size(); ++bucket) histogram.sample_count += durations.buckets[bucket];
  return histogram;
}

// Makes families of one rank.
class Families {
 public:
  explicit Families(std::uint32_t rank) : rank_{"rank", std::to_string(rank)} {}

  // Begins a family. Those that follow are its metrics.
  void Begin(const char* name, MetricType type, const char* help) {
    all_.push_back({std::string("slotwise_") + name, help, type, {}});
  }
  void Add(const Labels& labels, double value) {
    ClientMetric& metric = Make(labels);
    if (all_.back().type == MetricType::Counter) metric.counter.value = value;
    if (all_.back().type == MetricType::Gauge) metric.gauge.value = value;
  }
  void Add(const Labels& labels, std::uint64_t value) { Add(labels, static_cast<double>(value)); }
  void Add(const Labels& labels, const DurationStats& durations) {
    Make(labels).histogram = HistogramOf(durations);
  }
  // A family of one metric.
  template <class Value>
  void AddOne(const char* name, MetricType type, const char* help, const Value& value) {
    Begin(name, type, help);
    Add({}, value);
  }

  std::vector<MetricFamily> Take() { return std::move(all_); }

 private:
  ClientMetric& Make(const Labels& labels) {
    ClientMetric& metric = all_.back().metric.emplace_back();
    metric.label.push_back(rank_);
    metric.label.insert(metric.label.end(), labels.begin(), labels.end());
    return metric;
  }

  const ClientMetric::Label rank_;
  std::vector<MetricFamily> all_;
};

void AddCalls(const RankStats& stats, Families& families) {
  const std::pair<const char*, const CallStats*> methods[] = {{"lookup", &stats.lookups},
                                                              {"push", &stats.pushes}};
  families.Begin("requests_total", MetricType::Counter,
                 "Lookups and pushes that ended, by code; BUSY: RESOURCE_EXHAUSTED with a time to try again");
  for (const auto& [method, calls] : methods) {
    families.Add({{"method", method}, {"code", "OK"}}, calls->calls);
    // Those that never happened are there too, so that a rate finds the first.
    std::map<std::string, std::uint64_t> refusals{{std::string(kBusyRefusals), 0}};
    for (int code = 1; code <= static_cast<int>(StatusCode::kInternal); ++code) {
      refusals.emplace(ToString(static_cast<StatusCode>(code)), 0);
    }
    for (const auto& [code, count] : calls->refusals) refusals[code] = count;
    for (const auto& [code, count] : refusals) families.Add({{"method", method}, {"code", code}}, count);
  }
  const auto add = [&](const char* name, const char* help, std::uint64_t CallStats::*count) {
    families.Begin(name, MetricType::Counter, help);
    for (const auto& [method, calls] : methods) families.Add({{"method", method}}, calls->*count);
  };
  add("request_samples_total", "Samples of lookups and pushes that were answered OK", &CallStats::samples);
  add("request_keys_total", "Keys of lookups and pushes that were answered OK", &CallStats::keys);
  add("request_received_bytes_total", "Bytes of all lookups and pushes", &CallStats::bytes_in);
  add("request_sent_bytes_total", "Bytes of the replies to all lookups and pushes", &CallStats::bytes_out);
  families.Begin("request_duration_seconds", MetricType::Histogram,
                 "Time of lookups and pushes that were answered OK, from when their bytes were there");
  for (const auto& [method, calls] : methods) families.Add({{"method", method}}, calls->latency);
  families.Begin("request_stage_duration_seconds", MetricType::Histogram,
                 "The same time by stages, which follow each other");
  for (const auto& [method, calls] : methods) {
    for (std::size_t i = 0; i < kCallStages; ++i) {
      const auto stage = static_cast<CallStage>(i);
      families.Add({{"method", method}, {"stage", std::string(ToString(stage))}}, (*calls)[stage]);
    }
  }
}

void AddMemory(const RankStats& stats, Families& families) {
  struct Budget {
    const char* name;
    std::uint64_t bytes;
    std::uint64_t most;
  };
  const Budget budgets[] = {{"inbox", stats.inbox_bytes, stats.max_inbox_bytes},
                            {"received", stats.received_bytes, stats.max_received_bytes},
                            {"shared", stats.shared_bytes, stats.max_shared_bytes},
                            {"gpu_arena", stats.gpu_arena_bytes, stats.max_gpu_arena_bytes}};
  families.Begin("budget_bytes", MetricType::Gauge, "Memory that calls and clients have, by budget");
  for (const Budget& budget : budgets) families.Add({{"budget", budget.name}}, budget.bytes);
  families.Begin("budget_limit_bytes", MetricType::Gauge, "The most that a budget has");
  for (const Budget& budget : budgets) families.Add({{"budget", budget.name}}, budget.most);
}

}  // namespace

std::vector<MetricFamily> MetricsOf(const RankFacts& facts, const RankStats& stats) {
  Families families(stats.rank);
  families.Begin("build_info", MetricType::Gauge, "1; the labels say what runs");
  families.Add({{"version", facts.version}, {"device", facts.device}}, 1.0);
  families.AddOne("start_time_seconds", MetricType::Gauge, "When the rank began to count, in Unix time",
                  stats.started);
  AddCalls(stats, families);
  families.AddOne("rounds_total", MetricType::Counter, "Rounds that the rank took part in", stats.rounds);
  families.AddOne("round_busy_seconds", MetricType::Gauge,
                  "For how long the rank has been at the same round; 0: it has nothing to do",
                  Seconds(stats.busy_ns));
  families.AddOne("calls_under_way", MetricType::Gauge, "Calls of all kinds that are not answered yet",
                  stats.calls_under_way);
  families.Begin("waiting_requests", MetricType::Gauge,
                 "Requests in the inbox, and those that the ranks know of and have not answered");
  families.Add({{"state", "inbox"}}, stats.inbox_requests);
  families.Add({{"state", "announced"}}, stats.announced_requests);
  AddMemory(stats, families);
  families.AddOne("data_connections", MetricType::Gauge, "Connections of the data transport",
                  stats.data_connections);
  return families.Take();
}

}  // namespace slotwise
