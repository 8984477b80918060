#include "client/ctl/stats.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "client/ctl/text_table.h"

namespace slotwise::ctl {
namespace {

using nlohmann::ordered_json;

constexpr double kNsInSecond = 1e9;
constexpr double kMedian = 0.5;
constexpr double kLate = 0.99;

// Formats 1234567 ns as "1.23 ms".
std::string TimeText(double ns) {
  constexpr std::array kUnits{"ns", "us", "ms", "s"};
  std::size_t unit = 0;
  for (; ns >= 1000 && unit + 1 < kUnits.size(); ++unit) ns /= 1000;
  return Format(ns >= 100 || unit == 0 ? "%.0f " : ns >= 10 ? "%.1f " : "%.2f ", ns) + kUnits[unit];
}

std::string PercentText(double share) { return Format("%.0f %%", 100 * share); }

// Work is one rank's work, or all ranks', in an interval.
struct Work {
  CallStats lookups = {};
  CallStats pushes = {};
  double seconds = 0;  // 0: unknown

  double PerSecond(std::uint64_t count) const {
    return seconds > 0 ? static_cast<double>(count) / seconds : 0;
  }
  // "12.3", "12,345"
  std::string RateText(std::uint64_t count) const {
    const double rate = PerSecond(count);
    return rate < 100 ? Format("%.1f", rate) : CountText(static_cast<std::uint64_t>(std::llround(rate)));
  }
  std::string BytesRateText(std::uint64_t bytes) const { return Format("%.3f", PerSecond(bytes) / 1e9); }
};

Work WorkOf(const RankStats& since) {
  return {since.lookups, since.pushes, static_cast<double>(since.uptime_ns) / kNsInSecond};
}

std::string LateText(const DurationStats& times, double q) {
  return times.count() == 0 ? "-" : TimeText(times.Quantile(q));
}

std::vector<std::string> RowOf(const std::string& name, const Work& work, const RankStats& load) {
  const auto& [lookups, pushes, seconds] = work;
  const double request_queue = load.max_queue_bytes == 0 ? 0
                                                         : static_cast<double>(load.queue_bytes) /
                                                               static_cast<double>(load.max_queue_bytes);
  const auto again = [](const CallStats& calls) {
    std::uint64_t count = 0;
    for (const std::string_view code : {kBusyRefusals, std::string_view("UNAVAILABLE")}) {
      if (const auto found = calls.refusals.find(std::string(code)); found != calls.refusals.end())
        count += found->second;
    }
    return count;
  };
  const std::uint64_t retries = again(lookups) + again(pushes);
  return {name,
          work.RateText(lookups.calls),
          LateText(lookups.latency, kMedian),
          LateText(lookups.latency, kLate),
          work.RateText(pushes.calls),
          LateText(pushes.latency, kMedian),
          LateText(pushes.latency, kLate),
          work.RateText(lookups.keys + pushes.keys),
          work.BytesRateText(lookups.bytes_in + pushes.bytes_in),
          work.BytesRateText(lookups.bytes_out + pushes.bytes_out),
          CountText(load.queued_requests + load.pending_requests),
          PercentText(request_queue),
          work.RateText(retries),
          work.RateText(lookups.refused() + pushes.refused() - retries)};
}

double TimeIn(const CallStats& calls) {
  double sum = 0;
  for (const DurationStats& stage : calls.stages) sum += static_cast<double>(stage.sum_ns);
  return sum;
}

std::string StagesText(const CallStats& lookups, const CallStats& pushes) {
  TextTable table({"STAGE", ">LOOKUPS", ">SHARE", ">PUSHES", ">SHARE"});
  for (std::size_t s = 0; s < kCallStages; ++s) {
    std::vector<std::string> row{std::string(ToString(static_cast<CallStage>(s)))};
    for (const CallStats* calls : {&lookups, &pushes}) {
      const DurationStats& stage = calls->stages[s];
      const bool none = stage.count() == 0;
      row.push_back(none ? "-" : TimeText(stage.Mean()));
      row.push_back(none ? "-"
                         : PercentText(static_cast<double>(stage.sum_ns) / std::max(TimeIn(*calls), 1.0)));
    }
    table.Add(std::move(row));
  }
  return table.Text();
}

std::string SlowestText(const CallStats& all, const CallStats& lookups, const CallStats& pushes) {
  const auto slowest = FindSlowestStage(all);
  if (!slowest) return "no lookup or push was answered\n";
  std::string text = "slowest stage: " + std::string(ToString(slowest->stage)) + ", " +
                     PercentText(slowest->share) + " of the time";
  const auto add = [&](const char* name, const CallStats& calls) {
    if (const auto stage = FindSlowestStage(calls)) {
      text += std::string("; of ") + name + " " + std::string(ToString(stage->stage)) + ", " +
              PercentText(stage->share);
    }
  };
  add("lookups", lookups);
  add("pushes", pushes);
  return text + "\n";
}

ordered_json JsonOf(const DurationStats& times) {
  constexpr double kNsInMicrosecond = 1e3;
  return {{"count", times.count()},
          {"mean_us", times.Mean() / kNsInMicrosecond},
          {"p50_us", times.Quantile(kMedian) / kNsInMicrosecond},
          {"p99_us", times.Quantile(kLate) / kNsInMicrosecond}};
}

ordered_json JsonOf(const CallStats& calls) {
  ordered_json json{{"calls", calls.calls},         {"samples", calls.samples},
                    {"keys", calls.keys},           {"bytes_in", calls.bytes_in},
                    {"bytes_out", calls.bytes_out}, {"refusals", calls.refusals}};
  json["latency"] = JsonOf(calls.latency);
  for (std::size_t s = 0; s < kCallStages; ++s) {
    json["stages"][std::string(ToString(static_cast<CallStage>(s)))] = JsonOf(calls.stages[s]);
  }
  const auto slowest = FindSlowestStage(calls);
  json["slowest_stage"] = slowest ? ordered_json(ToString(slowest->stage)) : ordered_json(nullptr);
  return json;
}

ordered_json JsonOf(const RankStats& since) {
  return {{"rank", since.rank},
          {"instance", std::to_string(since.instance)},
          {"started", since.started},
          {"seconds", static_cast<double>(since.uptime_ns) / kNsInSecond},
          {"lookups", JsonOf(since.lookups)},
          {"pushes", JsonOf(since.pushes)},
          {"rounds", since.rounds},
          {"calls_under_way", since.calls_under_way},
          {"queued_requests", since.queued_requests},
          {"pending_requests", since.pending_requests},
          {"queue_bytes", since.queue_bytes},
          {"max_queue_bytes", since.max_queue_bytes},
          {"received_bytes", since.received_bytes},
          {"max_received_bytes", since.max_received_bytes},
          {"shared_bytes", since.shared_bytes},
          {"max_shared_bytes", since.max_shared_bytes},
          {"gpu_shared_bytes", since.gpu_shared_bytes},
          {"max_gpu_shared_bytes", since.max_gpu_shared_bytes},
          {"data_connections", since.data_connections},
          {"busy_seconds", static_cast<double>(since.busy_ns) / kNsInSecond},
          // Some of these had other names in 0.1:
          {"incarnation", std::to_string(since.instance)},
          {"inbox_requests", since.queued_requests},
          {"announced_requests", since.pending_requests},
          {"inbox_bytes", since.queue_bytes},
          {"max_inbox_bytes", since.max_queue_bytes},
          {"gpu_arena_bytes", since.gpu_shared_bytes},
          {"max_gpu_arena_bytes", since.max_gpu_shared_bytes}};
}

}  // namespace

std::optional<SlowestStage> FindSlowestStage(const CallStats& calls) {
  const auto* const most = std::ranges::max_element(calls.stages, {}, &DurationStats::sum_ns);
  if (most->sum_ns == 0) return std::nullopt;
  return SlowestStage{static_cast<CallStage>(most - calls.stages.begin()),
                      static_cast<double>(most->sum_ns) / TimeIn(calls)};
}

Answer ShowInterval(std::span<const RankStats> before, std::span<const RankStats> now) {
  TextTable table({">RANK", ">LOOKUPS/S", ">P50", ">P99", ">PUSHES/S", ">P50", ">P99", ">KEYS/S", ">IN GB/S",
                   ">OUT GB/S", ">QUEUE", ">FULL", ">RETRIES/S", ">REFUSED/S"});
  Answer answer{.json = {{"ranks", ordered_json::array()}}, .text = {}};
  Work all;
  RankStats load;
  std::string notes;
  for (std::size_t r = 0; r < now.size(); ++r) {
    const RankStats none;
    const RankStats& earlier = r < before.size() ? before[r] : none;
    const RankStats since = now[r].Since(earlier);
    const Work work = WorkOf(since);
    table.Add(RowOf(std::to_string(r), work, since));
    answer.json["ranks"].push_back(JsonOf(since));
    all.lookups.Add(since.lookups);
    all.pushes.Add(since.pushes);
    all.seconds = std::max(all.seconds, work.seconds);
    load.queued_requests += since.queued_requests;
    load.pending_requests += since.pending_requests;
    load.queue_bytes += since.queue_bytes;
    load.max_queue_bytes += since.max_queue_bytes;
    const std::string rank = "rank " + std::to_string(r);
    if (!before.empty() && earlier.instance != now[r].instance) {
      notes += rank + " was started again: this is what it has done since\n";
    }
    if (static_cast<double>(since.busy_ns) >= kNsInSecond) {
      notes +=
          rank + " has been at the same round for " + TimeText(static_cast<double>(since.busy_ns)) + "\n";
    }
  }
  if (now.size() > 1) table.Add(RowOf("all", all, load));
  CallStats both = all.lookups;
  both.Add(all.pushes);
  answer.json["lookups"] = JsonOf(all.lookups);
  answer.json["pushes"] = JsonOf(all.pushes);
  const auto slowest = FindSlowestStage(both);
  answer.json["slowest_stage"] = slowest ? ordered_json(ToString(slowest->stage)) : ordered_json(nullptr);
  answer.text = table.Text() + "\n" + StagesText(all.lookups, all.pushes) + "\n" +
                SlowestText(both, all.lookups, all.pushes) + notes;
  return answer;
}

Result<Answer> ShowStats(Client& client) {
  const auto stats = client.Stats();
  if (!stats.ok()) return stats.status();
  Answer answer = ShowInterval({}, *stats);
  answer.text =
      "since the start, " + TimeText(static_cast<double>(stats->front().uptime_ns)) + " ago:\n" + answer.text;
  return answer;
}

Result<Answer> Top(Client& client, const TopFlags& flags, bool json, bool clears,
                   std::chrono::milliseconds patience, std::ostream& out) {
  constexpr std::string_view kClear = "\x1b[H\x1b[2J";
  const auto interval = std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(flags.interval));
  auto before = client.Stats({.timeout = patience});
  if (!before.ok()) return before.status();
  auto next = std::chrono::steady_clock::now();
  for (std::uint64_t shown = 0; flags.count == 0 || shown < flags.count; ++shown) {
    next = std::max(next + interval, std::chrono::steady_clock::now());
    std::this_thread::sleep_until(next);
    auto now = client.Stats({.timeout = patience});
    Answer answer;
    if (now.ok()) {
      answer = ShowInterval(*before, *now);
      answer.text = "the last " +
                    TimeText(static_cast<double>(now->front().Since(before->front()).uptime_ns)) + ":\n" +
                    answer.text;
      before = std::move(now);
    } else {
      const std::string code(ToString(now.status().code()));
      answer = {.json = {{"error", {{"code", code}, {"message", now.status().message()}}}},
                .text = code + ": " + now.status().message() + "\n"};
    }
    if (clears && !json) out << kClear;
    out << (json ? answer.json.dump() + "\n" : answer.text + "\n") << std::flush;
    if (!out) break;  // the reader is gone
  }
  return Answer{.json = nullptr, .text = {}};
}

}  // namespace slotwise::ctl
