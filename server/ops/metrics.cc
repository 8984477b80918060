#include "server/ops/metrics.h"

#include <prometheus/client_metric.h>

#include <array>
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

// The first and the last bound of a histogram, as powers of two of a nanosecond.
struct Bounds {
  int first;
  int last;
};
constexpr Bounds kCalls{13, 37};        // from 8 µs to 137 s: a step's parts may take a minute to come
constexpr Bounds kCheckpoints{23, 43};  // from 8 ms to 2.4 h: a large table's takes as long as its disk
static_assert(std::uint64_t{1} << kCheckpoints.last <= DurationStats::FirstOf(DurationStats::kBuckets - 1),
              "longer durations share a bucket");

double Seconds(std::uint64_t ns) { return static_cast<double>(ns) / 1e9; }

ClientMetric::Histogram HistogramOf(const DurationStats& durations, const Bounds& bounds = kCalls) {
  ClientMetric::Histogram histogram;
  histogram.sample_sum = Seconds(durations.sum_ns);
  std::size_t bucket = 0;
  for (int power = bounds.first; power <= bounds.last; ++power) {
    const std::uint64_t bound = std::uint64_t{1} << power;
    for (; bucket < durations.buckets.size() && DurationStats::FirstOf(bucket) < bound; ++bucket) {
      histogram.sample_count += durations.buckets[bucket];
    }
    histogram.bucket.push_back({histogram.sample_count, Seconds(bound)});
  }
  for (; bucket < durations.buckets.size(); ++bucket) histogram.sample_count += durations.buckets[bucket];
  return histogram;
}

// Makes histograms of counts that are not times: StepsStats, ProbeLengths, EvictedAges.
template <class Counts>
ClientMetric::Histogram HistogramOf(const Counts& counts) {
  ClientMetric::Histogram histogram;
  histogram.sample_sum = static_cast<double>(counts.sum);
  for (std::size_t bucket = 0; bucket + 1 < Counts::kBuckets; ++bucket) {
    histogram.sample_count += counts.buckets[bucket];
    histogram.bucket.push_back({histogram.sample_count, static_cast<double>(Counts::BoundOf(bucket))});
  }
  histogram.sample_count += counts.buckets.back();
  return histogram;
}

// Makes the metric families of one rank.
class Families {
 public:
  explicit Families(std::uint32_t rank) : rank_{"rank", std::to_string(rank)} {}

  // Begins a family; the metrics that are added next belong to it.
  void Begin(const std::string& name, MetricType type, const char* help) {
    all_.push_back({"slotwise_" + name, help, type, {}});
  }
  // Adds a family of one metric, which has no rank label, by its whole name.
  void AddOfProcess(const char* name, MetricType type, const char* help, double value) {
    MetricFamily& family = all_.emplace_back(MetricFamily{name, help, type, {ClientMetric()}});
    if (type == MetricType::Counter) family.metric.front().counter.value = value;
    if (type == MetricType::Gauge) family.metric.front().gauge.value = value;
  }
  void Add(const Labels& labels, double value) {
    ClientMetric& metric = Make(labels);
    if (all_.back().type == MetricType::Counter) metric.counter.value = value;
    if (all_.back().type == MetricType::Gauge) metric.gauge.value = value;
  }
  void Add(const Labels& labels, std::uint64_t value) { Add(labels, static_cast<double>(value)); }
  void Add(const Labels& labels, const DurationStats& durations, const Bounds& bounds = kCalls) {
    Make(labels).histogram = HistogramOf(durations, bounds);
  }
  void Add(const Labels& labels, const ProbeLengths& lengths) {
    Make(labels).histogram = HistogramOf(lengths);
  }
  void Add(const Labels& labels, const StepsStats& steps) { Make(labels).histogram = HistogramOf(steps); }
  void Add(const Labels& labels, const EvictedAges& ages) { Make(labels).histogram = HistogramOf(ages); }
  // Adds a family of one metric.
  template <class Value>
  void AddOne(const std::string& name, MetricType type, const char* help, const Value& value) {
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
    // Refusals that never happened are there too, so that a rate sees the first one.
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
  std::array budgets{Budget{"queue", stats.queue_bytes, stats.max_queue_bytes},
                     Budget{"received", stats.received_bytes, stats.max_received_bytes},
                     Budget{"shared", stats.shared_bytes, stats.max_shared_bytes},
                     Budget{"gpu_shared", stats.gpu_shared_bytes, stats.max_gpu_shared_bytes}};
  families.Begin("call_memory_bytes", MetricType::Gauge, "Memory that calls and clients have, by budget");
  for (const Budget& budget : budgets) families.Add({{"budget", budget.name}}, budget.bytes);
  families.Begin("call_memory_limit_bytes", MetricType::Gauge, "The most that a budget has");
  for (const Budget& budget : budgets) families.Add({{"budget", budget.name}}, budget.most);
  budgets.front().name = "inbox";
  budgets.back().name = "gpu_arena";
  families.Begin("budget_bytes", MetricType::Gauge, "The name in 0.1 of call_memory_bytes");
  for (const Budget& budget : budgets) families.Add({{"budget", budget.name}}, budget.bytes);
  families.Begin("budget_limit_bytes", MetricType::Gauge, "The name in 0.1 of call_memory_limit_bytes");
  for (const Budget& budget : budgets) families.Add({{"budget", budget.name}}, budget.most);
}

void AddTables(const std::vector<TableStats>& tables, Families& families) {
  const auto add = [&](const char* name, MetricType type, const char* help, const auto& value) {
    families.Begin(std::string("table_") + name, type, help);
    for (const TableStats& table : tables) families.Add({{"table", table.name}}, value(table));
  };
  add("rows", MetricType::Gauge, "Rows of the table on this rank",
      [](const TableStats& table) { return table.state.rows; });
  add("max_rows", MetricType::Gauge, "The most rows that the table may have on all ranks together",
      [](const TableStats& table) { return table.max_rows; });
  add("evicts", MetricType::Gauge, "1 if the table, once it is full, evicts rows and takes new keys",
      [](const TableStats& table) { return std::uint64_t{table.evicts}; });
  add("hash_cells", MetricType::Gauge, "Cells of the rank's hash table, taken or free",
      [](const TableStats& table) { return table.state.cells; });
  add("bytes", MetricType::Gauge, "Device memory of the table's rows and hash table on this rank",
      [](const TableStats& table) { return table.state.bytes; });
  add("steps_total", MetricType::Counter, "Optimizer steps of the table; the same on every rank",
      [](const TableStats& table) { return table.state.steps; });
  add("new_rows_total", MetricType::Counter, "Rows that keys got on this rank",
      [](const TableStats& table) { return table.new_rows; });
  add("erased_rows_total", MetricType::Counter, "Rows of this rank that were erased",
      [](const TableStats& table) { return table.erased_rows; });
  add("evicted_rows_total", MetricType::Counter, "Rows of this rank that batches or EvictRows evicted",
      [](const TableStats& table) { return table.evicted_rows; });
  add("expired_rows_total", MetricType::Counter, "Rows of this rank that went because they had expired",
      [](const TableStats& table) { return table.expired_rows; });
  add("step_keys_total", MetricType::Counter, "Keys of the table's steps that are this rank's",
      [](const TableStats& table) { return table.state.step_keys; });
  add("step_rows_total", MetricType::Counter, "Rows of this rank that the table's steps updated",
      [](const TableStats& table) { return table.state.step_rows; });
  add("refused_keys_total", MetricType::Counter,
      "Keys of the table's steps that are this rank's, and got no row because of the table's admission",
      [](const TableStats& table) { return table.state.refused_keys; });
  add("non_finite_pushes_total", MetricType::Counter,
      "Pushes that this rank refused because a gradient was NaN or infinite",
      [](const TableStats& table) { return table.non_finite_pushes; });
  add("probe_length", MetricType::Histogram,
      "Pairs of cells of the rank's hash table that a search for a key looked at, of a sample",
      [](const TableStats& table) { return table.state.probes; });
  add("staleness_steps", MetricType::Histogram,
      "Steps that the table got between a lookup and the push of the gradients of its rows",
      [](const TableStats& table) { return table.staleness; });
  add("gradient_squares_total", MetricType::Counter,
      "Sum of the squares of a sample of the gradients that came to this rank",
      [](const TableStats& table) { return table.gradients.squares; });
  add("gradient_elements_total", MetricType::Counter, "How many gradients that sample has",
      [](const TableStats& table) { return table.gradients.numbers; });
  families.Begin("table_evicted_age_steps", MetricType::Histogram,
                 "Ages of this rank's rows that batches evicted from the full table, in steps of the table");
  for (const TableStats& table : tables) {
    if (table.evicts) families.Add({{"table", table.name}}, table.evicted_ages);
  }
  families.Begin("table_youngest_evicted_age_steps", MetricType::Gauge,
                 "At least how old the youngest row of the last such eviction was, of all ranks");
  for (const TableStats& table : tables) {
    if (table.youngest_evicted) families.Add({{"table", table.name}}, *table.youngest_evicted);
  }
  families.Begin("table_hot_keys_share", MetricType::Gauge,
                 "Which part of the keys that came to this rank of late its hottest keys are, at least");
  for (const TableStats& table : tables) {
    for (const std::size_t top : {1, 10, 100}) {
      families.Add({{"table", table.name}, {"top", std::to_string(top)}}, table.hot_keys.ShareOf(top));
    }
  }
  const auto add_batches = [&](const char* name, const char* help, std::uint64_t BatchCounts::*count) {
    families.Begin(std::string("table_") + name, MetricType::Counter, help);
    for (const TableStats& table : tables) {
      families.Add({{"table", table.name}, {"method", "lookup"}}, table.lookups.*count);
      families.Add({{"table", table.name}, {"method", "push"}}, table.pushes.*count);
    }
  };
  add_batches("samples_total", "Samples of the table that this rank received and that got a round",
              &BatchCounts::samples);
  add_batches("keys_total", "Keys of the table that this rank received and that got a round",
              &BatchCounts::keys);
  families.Begin("table_batches_total", MetricType::Counter,
                 "Lookups' rounds and steps of a table, by which of their bags travelled between ranks");
  for (const TableStats& table : tables) {
    families.Add({{"table", table.name}, {"travel", "all_bags"}}, table.state.all_bags);
    families.Add({{"table", table.name}, {"travel", "owned_bags"}}, table.state.owned_bags);
  }
}

void AddJournal(const JournalStats& journal, Families& families) {
  families.AddOne("journal_written_bytes_total", MetricType::Counter, "Bytes of records that are on the disk",
                  journal.written_bytes);
  families.AddOne("journal_queued_bytes", MetricType::Gauge, "Bytes of records that wait to be written",
                  journal.queued_bytes);
  families.AddOne("journal_appended_round", MetricType::Gauge, "The last round that was recorded",
                  journal.appended_round);
  families.AddOne("journal_durable_round", MetricType::Gauge, "The last round that is on this rank's disk",
                  journal.durable_round);
  families.AddOne("journal_failed", MetricType::Gauge, "1: nothing is written any more",
                  journal.failed ? 1.0 : 0.0);
  families.AddOne("journal_blocked", MetricType::Gauge,
                  "1: the last update that was to be recorded got no space, and was refused",
                  journal.blocked ? 1.0 : 0.0);
  families.AddOne("journal_sync_duration_seconds", MetricType::Histogram,
                  "Time that the file system took to sync", journal.syncs);
}

void AddCheckpoints(const CheckpointStats& checkpoints, Families& families) {
  families.Begin("checkpoints_total", MetricType::Counter, "Checkpoints since the server started, by how");
  families.Add({{"outcome", "written"}}, checkpoints.written);
  families.Add({{"outcome", "failed"}}, checkpoints.failed);
  families.Add({{"outcome", "unreadable"}}, checkpoints.unreadable);
  families.Begin("checkpoint_duration_seconds", MetricType::Histogram,
                 "Time from the round that began a checkpoint until the checkpoint exists");
  families.Add({}, checkpoints.durations, kCheckpoints);
  families.AddOne("checkpoint_under_way", MetricType::Gauge, "1: a checkpoint is being written or read back",
                  checkpoints.under_way ? 1.0 : 0.0);
  families.AddOne(
      "checkpoint_age_seconds", MetricType::Gauge,
      "How old the newest checkpoint's state is, or, without one, the data folder; 0: nothing has "
      "changed since",
      static_cast<double>(checkpoints.age.count()) / 1e9);
  families.AddOne("checkpoint_bytes", MetricType::Gauge,
                  "Size of the newest checkpoint, of all ranks; 0: there is none", checkpoints.newest_bytes);
  families.AddOne("checkpoint_rows", MetricType::Gauge,
                  "Rows in the newest checkpoint's own files, of all ranks", checkpoints.newest_rows);
}

// These have the names that Prometheus's client libraries for other languages use.
void AddProcess(const ProcessUsage& usage, Families& families) {
  const auto add = [&](const char* name, MetricType type, const char* help, double value) {
    families.AddOfProcess(name, type, help, value);
  };
  add("process_cpu_seconds_total", MetricType::Counter, "Processor time of the process", usage.cpu_seconds);
  add("process_resident_memory_bytes", MetricType::Gauge, "Host memory that the process has touched",
      static_cast<double>(usage.resident_bytes));
  add("process_virtual_memory_bytes", MetricType::Gauge, "Addresses that the process has mapped",
      static_cast<double>(usage.virtual_bytes));
  add("process_open_fds", MetricType::Gauge, "Files and connections that the process has open",
      static_cast<double>(usage.open_files));
  add("process_max_fds", MetricType::Gauge, "The most that it may have open",
      static_cast<double>(usage.max_files));
  families.Begin(
      "heap_bytes", MetricType::Gauge,
      "Host memory that malloc has: what the program uses, and what it gave back and malloc keeps");
  families.Add({{"state", "used"}}, usage.heap_used_bytes);
  families.Add({{"state", "free"}}, usage.heap_free_bytes);
}

}  // namespace

std::vector<MetricFamily> MetricsOf(const RankFacts& facts, const RankReading& reading) {
  const RankStats& stats = reading.calls;
  Families families(stats.rank);
  families.Begin("build_info", MetricType::Gauge, "1; the labels say what runs");
  families.Add({{"version", facts.version}, {"device", facts.device}}, 1.0);
  families.AddOne("start_time_seconds", MetricType::Gauge, "When the rank began to count, in Unix time",
                  stats.started);
  families.AddOne("ranks", MetricType::Gauge, "How many ranks the server has", std::uint64_t{facts.ranks});
  AddCalls(stats, families);
  families.AddOne("rounds_total", MetricType::Counter, "Rounds that the rank took part in", stats.rounds);
  families.AddOne("round_busy_seconds", MetricType::Gauge,
                  "For how long the rank has been at the same round; 0: it has nothing to do",
                  Seconds(stats.busy_ns));
  families.AddOne("calls_under_way", MetricType::Gauge, "Calls of all kinds that are not answered yet",
                  stats.calls_under_way);
  families.AddOne("queued_requests", MetricType::Gauge, "Requests in the request queue",
                  stats.queued_requests);
  families.AddOne("pending_requests", MetricType::Gauge,
                  "Requests that the ranks know of and have not answered", stats.pending_requests);
  families.Begin("waiting_requests", MetricType::Gauge,
                 "The names in 0.1 of queued_requests and pending_requests");
  families.Add({{"state", "inbox"}}, stats.queued_requests);
  families.Add({{"state", "announced"}}, stats.pending_requests);
  AddMemory(stats, families);
  families.AddOne("data_connections", MetricType::Gauge, "Connections of the data transport",
                  stats.data_connections);
  families.Begin("access_refused_total", MetricType::Counter,
                 "Calls of callers that the server does not know, and of callers without the right");
  families.Add({{"code", "UNAUTHENTICATED"}}, reading.refused.unauthenticated);
  families.Add({{"code", "PERMISSION_DENIED"}}, reading.refused.permission_denied);
  const EngineStats& engine = reading.engine;
  families.AddOne("repeated_parts_total", MetricType::Counter,
                  "Parts of steps that came again, and were not applied again", engine.repeated_parts);
  families.AddOne("incomplete_steps", MetricType::Gauge, "Steps that wait for parts; the same on every rank",
                  engine.incomplete_steps);
  families.AddOne("collective_wait_seconds_total", MetricType::Counter,
                  "Time that the engine waited for other ranks",
                  static_cast<double>(engine.in_collectives.count()) / 1e9);
  families.Begin("exchange_duration_seconds", MetricType::Histogram,
                 "Time of exchanges of arrays between ranks, from when the rank's own were there");
  for (std::size_t i = 0; i < kExchangeOperations; ++i) {
    const auto operation = static_cast<ExchangeOperation>(i);
    families.Add({{"operation", std::string(ToString(operation))}}, engine.exchanges[i]);
  }
  families.AddOne("device_memory_bytes", MetricType::Gauge,
                  "Memory of the rank's device, of all processes; with the CPU backend the host's",
                  reading.device_bytes);
  families.AddOne("device_memory_free_bytes", MetricType::Gauge, "What can still be taken of it",
                  reading.device_free_bytes);
  families.AddOne("device_memory_for_tables_bytes", MetricType::Gauge,
                  "What tables can still take of it: all else is set aside", reading.for_tables_bytes);
  AddTables(engine.tables, families);
  if (engine.journal) AddJournal(*engine.journal, families);
  if (engine.checkpoints) AddCheckpoints(*engine.checkpoints, families);
  if (reading.disk) {
    families.AddOne("data_folder_bytes", MetricType::Gauge, "Size of the data folder's file system",
                    reading.disk->bytes);
    families.AddOne("data_folder_free_bytes", MetricType::Gauge, "What the server may still take of it",
                    reading.disk->free_bytes);
  }
  AddProcess(reading.process, families);
  return families.Take();
}

}  // namespace slotwise
