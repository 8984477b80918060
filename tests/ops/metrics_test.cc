// Tests the metrics in Prometheus's format.
#include "server/ops/metrics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/ops/metrics_text.h"

namespace slotwise {
namespace {

std::string TextOf(const RankReading& reading) {
  return MetricsText(MetricsOf({.version = "1.2.3", .device = "a \"GPU\"", .ranks = 5}, reading));
}
std::string TextOf(const RankStats& stats) { return TextOf(RankReading{.calls = stats}); }
bool Has(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}
DurationStats Durations(const std::vector<std::uint64_t>& ns) {
  DurationStats durations;
  durations.buckets.resize(DurationStats::kBuckets);
  for (const std::uint64_t each : ns) {
    durations.sum_ns += each;
    ++durations.buckets[DurationStats::BucketOf(each)];
  }
  return durations;
}

TEST(MetricsTest, SayWhatARankHasCounted) {
  RankStats stats{.rank = 3, .started = 1'790'000'000};
  stats.lookups = {.calls = 5, .samples = 50, .keys = 500, .bytes_in = 5000, .bytes_out = 50'000};
  stats.pushes.calls = 2;
  stats.pushes.refusals = {{"INVALID_ARGUMENT", 7}, {"BUSY", 8}};
  stats.rounds = 9;
  stats.busy_ns = 1'500'000'000;
  stats.calls_under_way = 10;
  stats.queued_requests = 11;
  stats.pending_requests = 12;
  stats.queue_bytes = 13;
  stats.max_queue_bytes = 14;
  stats.received_bytes = 15;
  stats.max_received_bytes = 16;
  stats.shared_bytes = 17;
  stats.max_shared_bytes = 18;
  stats.gpu_shared_bytes = 19;
  stats.max_gpu_shared_bytes = 20;
  stats.data_connections = 21;
  const std::string text = TextOf(stats);
  for (const char* const line : {
           R"(slotwise_build_info{rank="3",version="1.2.3",device="a \"GPU\""} 1)",
           R"(slotwise_start_time_seconds{rank="3"} 1790000000)",
           R"(slotwise_ranks{rank="3"} 5)",
           R"(slotwise_requests_total{rank="3",method="lookup",code="OK"} 5)",
           R"(slotwise_requests_total{rank="3",method="lookup",code="BUSY"} 0)",
           R"(slotwise_requests_total{rank="3",method="push",code="OK"} 2)",
           R"(slotwise_requests_total{rank="3",method="push",code="INVALID_ARGUMENT"} 7)",
           R"(slotwise_requests_total{rank="3",method="push",code="BUSY"} 8)",
           R"(slotwise_requests_total{rank="3",method="push",code="INTERNAL"} 0)",
           R"(slotwise_request_samples_total{rank="3",method="lookup"} 50)",
           R"(slotwise_request_keys_total{rank="3",method="lookup"} 500)",
           R"(slotwise_request_received_bytes_total{rank="3",method="lookup"} 5000)",
           R"(slotwise_request_sent_bytes_total{rank="3",method="lookup"} 50000)",
           R"(slotwise_rounds_total{rank="3"} 9)",
           R"(slotwise_round_busy_seconds{rank="3"} 1.5)",
           R"(slotwise_calls_under_way{rank="3"} 10)",
           R"(slotwise_queued_requests{rank="3"} 11)",
           R"(slotwise_pending_requests{rank="3"} 12)",
           R"(slotwise_waiting_requests{rank="3",state="inbox"} 11)",
           R"(slotwise_waiting_requests{rank="3",state="announced"} 12)",
           R"(slotwise_call_memory_bytes{rank="3",budget="queue"} 13)",
           R"(slotwise_call_memory_limit_bytes{rank="3",budget="queue"} 14)",
           R"(slotwise_call_memory_bytes{rank="3",budget="received"} 15)",
           R"(slotwise_call_memory_limit_bytes{rank="3",budget="received"} 16)",
           R"(slotwise_call_memory_bytes{rank="3",budget="shared"} 17)",
           R"(slotwise_call_memory_limit_bytes{rank="3",budget="shared"} 18)",
           R"(slotwise_call_memory_bytes{rank="3",budget="gpu_shared"} 19)",
           R"(slotwise_call_memory_limit_bytes{rank="3",budget="gpu_shared"} 20)",
           R"(slotwise_budget_bytes{rank="3",budget="inbox"} 13)",
           R"(slotwise_budget_limit_bytes{rank="3",budget="inbox"} 14)",
           R"(slotwise_budget_bytes{rank="3",budget="received"} 15)",
           R"(slotwise_budget_limit_bytes{rank="3",budget="received"} 16)",
           R"(slotwise_budget_bytes{rank="3",budget="shared"} 17)",
           R"(slotwise_budget_limit_bytes{rank="3",budget="shared"} 18)",
           R"(slotwise_budget_bytes{rank="3",budget="gpu_arena"} 19)",
           R"(slotwise_budget_limit_bytes{rank="3",budget="gpu_arena"} 20)",
           R"(slotwise_data_connections{rank="3"} 21)",
       }) {
    EXPECT_TRUE(Has(text, line)) << line;
  }
}

TEST(MetricsTest, SayWhatStepsHadAndWhatWasRefused) {
  RankReading reading{.calls = {.rank = 2}};
  StepsStats staleness{.sum = 9001};
  staleness.buckets[0] = 3;
  staleness.buckets[3] = 2;
  staleness.buckets.back() = 1;
  reading.engine.tables = {{.name = "ads",
                            .state = {.step_keys = 5, .step_rows = 6},
                            .non_finite_pushes = 7,
                            .hot_keys = {.sampled = 16, .keys = {{Key{1}, 8, 9}, {Key{2}, 2, 3}}},
                            .staleness = staleness,
                            .gradients = {.squares = 0.5, .numbers = 8}}};
  for (std::uint64_t key = 3; key < 9; ++key)
    reading.engine.tables[0].hot_keys.keys.push_back({Key{key}, 0, 1});

  const std::string text = TextOf(reading);
  EXPECT_TRUE(Has(text, R"(slotwise_table_step_keys_total{rank="2",table="ads"} 5)")) << text;
  EXPECT_TRUE(Has(text, R"(slotwise_table_step_rows_total{rank="2",table="ads"} 6)")) << text;
  EXPECT_TRUE(Has(text, R"(slotwise_table_non_finite_pushes_total{rank="2",table="ads"} 7)")) << text;
  EXPECT_TRUE(Has(text, R"(slotwise_table_hot_keys_share{rank="2",table="ads",top="1"} 0.5)")) << text;
  EXPECT_TRUE(Has(text, R"(slotwise_table_hot_keys_share{rank="2",table="ads",top="10"} 0.625)")) << text;
  EXPECT_TRUE(Has(text, R"(slotwise_table_hot_keys_share{rank="2",table="ads",top="100"} 0.625)")) << text;
  EXPECT_TRUE(Has(text, R"(slotwise_table_gradient_squares_total{rank="2",table="ads"} 0.5)")) << text;
  EXPECT_TRUE(Has(text, R"(slotwise_table_gradient_elements_total{rank="2",table="ads"} 8)")) << text;
  EXPECT_TRUE(Has(text, R"(slotwise_table_staleness_steps_sum{rank="2",table="ads"} 9001)")) << text;
  EXPECT_TRUE(Has(text, R"(slotwise_table_staleness_steps_count{rank="2",table="ads"} 6)")) << text;
  const std::vector<std::pair<std::string, int>> buckets{{"0", 3}, {"1", 3},    {"2", 3},   {"4", 5},
                                                         {"8", 5}, {"4096", 5}, {"+Inf", 6}};
  for (const auto& [bound, count] : buckets) {
    const std::string line =
        std::string(R"(slotwise_table_staleness_steps_bucket{rank="2",table="ads",le=")") + bound + "\"} " +
        std::to_string(count);
    EXPECT_TRUE(Has(text, line)) << line;
  }
}

TEST(MetricsTest, SayHowFarSearchesWent) {
  RankReading reading{.calls = {.rank = 2}};
  reading.engine.tables = {{.name = "ads"}, {.name = "idle"}};
  for (const std::uint64_t pairs : {1, 1, 2, 3, 4, 5, 1024, 1025, 9000})
    reading.engine.tables[0].state.probes.Count(pairs);
  const std::string text = TextOf(reading);
  const auto bucket = [](const std::string& bound, int count) {
    return R"(slotwise_table_probe_length_bucket{rank="2",table="ads",le=")" + bound + "\"} " +
           std::to_string(count);
  };
  for (const std::string& line :
       {bucket("1", 2), bucket("2", 3), bucket("4", 5), bucket("8", 6), bucket("512", 6), bucket("1024", 7),
        bucket("+Inf", 9), std::string(R"(slotwise_table_probe_length_count{rank="2",table="ads"} 9)"),
        std::string(R"(slotwise_table_probe_length_sum{rank="2",table="ads"} 11065)"),
        std::string(R"(slotwise_table_probe_length_count{rank="2",table="idle"} 0)")}) {
    EXPECT_TRUE(Has(text, line)) << line << "\n" << text;
  }
  EXPECT_EQ(text.find(R"(slotwise_table_probe_length_bucket{rank="2",table="ads",le="2048")"),
            std::string::npos);
}

TEST(MetricsTest, SayHowOldEvictedRowsWere) {
  EvictedAges ages;
  for (const std::uint64_t age : {0, 1, 2, 3, 4, 1000}) {
    ++ages.buckets[EvictedAges::BucketOf(age)];
    ages.sum += age;
  }
  ++ages.buckets.back();
  RankReading reading{.calls = {.rank = 2}};
  reading.engine.tables = {
      {.name = "ads", .evicts = true, .evicted_ages = ages, .youngest_evicted = 0},
      {.name = "full", .evicts = true},
      {.name = "idle"},
  };
  const std::string text = TextOf(reading);
  const auto bucket = [](const std::string& bound, int count) {
    return R"(slotwise_table_evicted_age_steps_bucket{rank="2",table="ads",le=")" + bound + "\"} " +
           std::to_string(count);
  };
  for (const std::string& line :
       {bucket("0", 1), bucket("1", 2), bucket("3", 4), bucket("7", 5), bucket("511", 5), bucket("1023", 6),
        bucket("34359738367", 6), bucket("+Inf", 7),
        std::string(R"(slotwise_table_evicted_age_steps_sum{rank="2",table="ads"} 1010)"),
        std::string(R"(slotwise_table_evicted_age_steps_count{rank="2",table="full"} 0)"),
        std::string(R"(slotwise_table_youngest_evicted_age_steps{rank="2",table="ads"} 0)")}) {
    EXPECT_TRUE(Has(text, line)) << line << "\n" << text;
  }
  EXPECT_EQ(text.find(R"(slotwise_table_youngest_evicted_age_steps{rank="2",table="full")"),
            std::string::npos);
  EXPECT_EQ(text.find(R"(age_steps_count{rank="2",table="idle")"), std::string::npos);
}

TEST(MetricsTest, SayHowLongExchangesTook) {
  RankReading reading{.calls = {.rank = 2}};
  reading.engine.exchanges = {Durations({1'000'000'000}), Durations({2'000'000'000, 500'000'000}), {}};
  const std::string text = TextOf(reading);
  for (const char* const line : {
           R"(slotwise_exchange_duration_seconds_count{rank="2",operation="all_gather"} 1)",
           R"(slotwise_exchange_duration_seconds_sum{rank="2",operation="all_gather"} 1)",
           R"(slotwise_exchange_duration_seconds_count{rank="2",operation="reduce_scatter"} 2)",
           R"(slotwise_exchange_duration_seconds_sum{rank="2",operation="reduce_scatter"} 2.5)",
           R"(slotwise_exchange_duration_seconds_count{rank="2",operation="all_to_all"} 0)",
       }) {
    EXPECT_TRUE(Has(text, line)) << line << "\n" << text;
  }
}

TEST(MetricsTest, SayWhatTheEngineHasCounted) {
  RankReading reading{
      .calls = {.rank = 2}, .device_bytes = 80, .device_free_bytes = 81, .for_tables_bytes = 82};
  reading.engine.repeated_parts = 1;
  reading.engine.incomplete_steps = 2;
  reading.engine.in_collectives = std::chrono::milliseconds(2500);
  reading.engine.tables = {{.name = "ads",
                            .max_rows = 3,
                            .evicts = true,
                            .state = {.rows = 4,
                                      .cells = 5,
                                      .bytes = 6,
                                      .steps = 7,
                                      .all_bags = 8,
                                      .owned_bags = 9,
                                      .refused_keys = 34},
                            .new_rows = 10,
                            .erased_rows = 11,
                            .evicted_rows = 13,
                            .expired_rows = 33,
                            .lookups = {.samples = 12, .keys = 13},
                            .pushes = {.samples = 14, .keys = 15}},
                           {.name = "b\\\"", .max_rows = 1, .state = {}, .lookups = {}, .pushes = {}}};
  reading.engine.journal = JournalStats{.written_bytes = 16,
                                        .queued_bytes = 17,
                                        .appended_round = 18,
                                        .durable_round = 19,
                                        .failed = true,
                                        .blocked = true,
                                        .syncs = Durations({1'000'000'000})};
  reading.engine.checkpoints = CheckpointStats{.written = 20,
                                               .failed = 21,
                                               .unreadable = 22,
                                               .under_way = true,
                                               .newest_bytes = 23,
                                               .newest_rows = 24,
                                               .durations = Durations({2'000'000'000, 3'000'000'000}),
                                               .age = std::chrono::milliseconds(500)};
  reading.process = {.cpu_seconds = 1.5,
                     .resident_bytes = 25,
                     .virtual_bytes = 26,
                     .heap_used_bytes = 29,
                     .heap_free_bytes = 30,
                     .open_files = 27,
                     .max_files = 28};
  reading.disk = {.bytes = 31, .free_bytes = 32};
  const std::string text = TextOf(reading);
  for (const char* const line : {
           R"(slotwise_repeated_parts_total{rank="2"} 1)",
           R"(slotwise_incomplete_steps{rank="2"} 2)",
           R"(slotwise_collective_wait_seconds_total{rank="2"} 2.5)",
           R"(slotwise_device_memory_bytes{rank="2"} 80)",
           R"(slotwise_device_memory_free_bytes{rank="2"} 81)",
           R"(slotwise_device_memory_for_tables_bytes{rank="2"} 82)",
           R"(slotwise_table_max_rows{rank="2",table="ads"} 3)",
           R"(slotwise_table_rows{rank="2",table="ads"} 4)",
           R"(slotwise_table_hash_cells{rank="2",table="ads"} 5)",
           R"(slotwise_table_bytes{rank="2",table="ads"} 6)",
           R"(slotwise_table_steps_total{rank="2",table="ads"} 7)",
           R"(slotwise_table_batches_total{rank="2",table="ads",travel="all_bags"} 8)",
           R"(slotwise_table_batches_total{rank="2",table="ads",travel="owned_bags"} 9)",
           R"(slotwise_table_new_rows_total{rank="2",table="ads"} 10)",
           R"(slotwise_table_erased_rows_total{rank="2",table="ads"} 11)",
           R"(slotwise_table_evicts{rank="2",table="ads"} 1)",
           R"(slotwise_table_evicts{rank="2",table="b\\\""} 0)",
           R"(slotwise_table_evicted_rows_total{rank="2",table="ads"} 13)",
           R"(slotwise_table_expired_rows_total{rank="2",table="ads"} 33)",
           R"(slotwise_table_refused_keys_total{rank="2",table="ads"} 34)",
           R"(slotwise_table_samples_total{rank="2",table="ads",method="lookup"} 12)",
           R"(slotwise_table_keys_total{rank="2",table="ads",method="lookup"} 13)",
           R"(slotwise_table_samples_total{rank="2",table="ads",method="push"} 14)",
           R"(slotwise_table_keys_total{rank="2",table="ads",method="push"} 15)",
           R"(slotwise_table_rows{rank="2",table="b\\\""} 0)",
           R"(slotwise_journal_written_bytes_total{rank="2"} 16)",
           R"(slotwise_journal_queued_bytes{rank="2"} 17)",
           R"(slotwise_journal_appended_round{rank="2"} 18)",
           R"(slotwise_journal_durable_round{rank="2"} 19)",
           R"(slotwise_journal_failed{rank="2"} 1)",
           R"(slotwise_journal_blocked{rank="2"} 1)",
           R"(slotwise_data_folder_bytes{rank="2"} 31)",
           R"(slotwise_data_folder_free_bytes{rank="2"} 32)",
           R"(slotwise_journal_sync_duration_seconds_sum{rank="2"} 1)",
           R"(slotwise_checkpoints_total{rank="2",outcome="written"} 20)",
           R"(slotwise_checkpoints_total{rank="2",outcome="failed"} 21)",
           R"(slotwise_checkpoints_total{rank="2",outcome="unreadable"} 22)",
           R"(slotwise_checkpoint_under_way{rank="2"} 1)",
           R"(slotwise_checkpoint_bytes{rank="2"} 23)",
           R"(slotwise_checkpoint_rows{rank="2"} 24)",
           R"(slotwise_checkpoint_duration_seconds_count{rank="2"} 2)",
           R"(slotwise_checkpoint_duration_seconds_sum{rank="2"} 5)",
           R"(slotwise_checkpoint_age_seconds{rank="2"} 0.5)",
           R"(process_cpu_seconds_total 1.5)",
           R"(process_resident_memory_bytes 25)",
           R"(process_virtual_memory_bytes 26)",
           R"(process_open_fds 27)",
           R"(process_max_fds 28)",
           R"(slotwise_heap_bytes{rank="2",state="used"} 29)",
           R"(slotwise_heap_bytes{rank="2",state="free"} 30)",
       }) {
    EXPECT_TRUE(Has(text, line)) << line << "\n" << text;
  }
  reading.engine.journal.reset();
  reading.engine.checkpoints.reset();
  reading.disk.reset();
  EXPECT_EQ(TextOf(reading).find("slotwise_journal"), std::string::npos);
  EXPECT_EQ(TextOf(reading).find("slotwise_checkpoint"), std::string::npos);
  EXPECT_EQ(TextOf(reading).find("slotwise_data_folder"), std::string::npos);
}

TEST(MetricsTest, HistogramsCountEachDurationOnce) {
  RankStats stats;
  // 8,192 ns is the first bound, and a duration of just that is longer.
  stats.lookups.latency = Durations({3, 8191, 8192, 1'000'000, 5'000'000'000, 60'000'000'000});
  stats.lookups.stages[static_cast<std::size_t>(CallStage::kRound)] = Durations({20'000});
  const auto families = MetricsOf({}, {.calls = stats});
  const auto family = std::ranges::find(families, "slotwise_request_duration_seconds",
                                        [](const prometheus::MetricFamily& each) { return each.name; });
  ASSERT_NE(family, families.end());
  const auto& histogram = family->metric.front().histogram;
  EXPECT_EQ(histogram.sample_count, 6U);
  EXPECT_DOUBLE_EQ(histogram.sample_sum, 65.001016386);
  ASSERT_EQ(histogram.bucket.size(), 25U);
  for (std::size_t i = 0; i < histogram.bucket.size(); ++i) {
    const std::uint64_t bound = std::uint64_t{8192} << i;
    EXPECT_DOUBLE_EQ(histogram.bucket[i].upper_bound, static_cast<double>(bound) / 1e9);
    const std::uint64_t shorter = 2U + (bound > 8192 ? 1 : 0) + (bound > 1'000'000 ? 1 : 0) +
                                  (bound > 5'000'000'000 ? 1 : 0) + (bound > 60'000'000'000 ? 1 : 0);
    EXPECT_EQ(histogram.bucket[i].cumulative_count, shorter) << bound;
  }
  const std::string text = TextOf(stats);
  EXPECT_TRUE(Has(text, R"(slotwise_request_duration_seconds_bucket{rank="0",method="lookup",le="+Inf"} 6)"));
  EXPECT_TRUE(Has(
      text, R"(slotwise_request_stage_duration_seconds_count{rank="0",method="lookup",stage="round"} 1)"));
  EXPECT_TRUE(
      Has(text, R"(slotwise_request_stage_duration_seconds_count{rank="0",method="push",stage="send"} 0)"));
}

// A checkpoint of a large table takes an hour.
TEST(MetricsTest, SlowThingsHaveBoundsOfTheirOwn) {
  constexpr std::uint64_t kSecond = 1'000'000'000;
  RankReading reading;
  reading.engine.checkpoints =
      CheckpointStats{.durations = Durations({kSecond, 3600 * kSecond, 12 * 3600 * kSecond}), .age = {}};
  const std::string text = TextOf(reading);
  const auto bucket = [](const std::string& bound, int count) {
    return R"(slotwise_checkpoint_duration_seconds_bucket{rank="0",le=")" + bound + "\"} " +
           std::to_string(count);
  };
  for (const std::string& line :
       {bucket("0.008388608", 0), bucket("1.073741824", 1), bucket("2199.023255552", 1),
        bucket("4398.046511104", 2), bucket("8796.093022208", 2), bucket("+Inf", 3)}) {
    EXPECT_TRUE(Has(text, line)) << line << "\n" << text;
  }
}

// What is printed with 16 digits, as libraries do, may have a few more than the bound itself.
TEST(MetricsTest, BoundsArePrintedShort) {
  const std::string text = TextOf(RankStats());
  EXPECT_NE(text.find(R"(le="8.192e-06")"), std::string::npos);
  EXPECT_NE(text.find(R"(le="0.000131072")"), std::string::npos);
  std::size_t bounds = 0;
  for (std::size_t at = 0; (at = text.find("le=\"", at)) != std::string::npos; ++bounds) {
    at += 4;
    const std::string bound = text.substr(at, text.find('"', at) - at);
    EXPECT_LE(std::ranges::count_if(bound, [](char c) { return c >= '0' && c <= '9'; }), 15) << bound;
  }
  EXPECT_GT(bounds, 100U);
}

TEST(MetricsTest, NumbersReadAsTheyWere) {
  for (const auto& [value, said] : std::initializer_list<std::pair<double, const char*>>{
           {0, "0"},
           {-0.0, "0"},
           {1e6, "1000000"},
           {-3, "-3"},
           {9007199254740992, "9007199254740992"},
           {1e300, "1e+300"},
           {0.1, "0.1"},
           {8192 / 1e9, "8.192e-06"},
           {std::numeric_limits<double>::infinity(), "+Inf"},
           {-std::numeric_limits<double>::infinity(), "-Inf"},
           {std::nan(""), "NaN"}}) {
    EXPECT_EQ(NumberText(value), said);
  }
}

TEST(MetricsTest, TextIsEscaped) {
  prometheus::MetricFamily family{"a", "back\\slash\nand \"line\"", prometheus::MetricType::Gauge, {{}}};
  family.metric.front().label = {{"b", "\\ \" \n"}};
  family.metric.front().gauge.value = 1.5;
  EXPECT_EQ(MetricsText({family}),
            "# HELP a back\\\\slash\\nand \"line\"\n# TYPE a gauge\na{b=\"\\\\ \\\" \\n\"} 1.5\n");
}

}  // namespace
}  // namespace slotwise
