#include "slotwise/server_stats.h"

#include <numeric>
#include <ranges>

namespace slotwise {
namespace {

void Subtract(const DurationStats& before, DurationStats& now) {
  now.sum_ns -= before.sum_ns;
  for (std::size_t b = 0; b < std::min(before.buckets.size(), now.buckets.size()); ++b) {
    now.buckets[b] -= before.buckets[b];
  }
}

void Subtract(const CallStats& before, CallStats& now) {
  now.calls -= before.calls;
  now.samples -= before.samples;
  now.keys -= before.keys;
  now.bytes_in -= before.bytes_in;
  now.bytes_out -= before.bytes_out;
  for (const auto& [code, count] : before.refusals) now.refusals[code] -= count;
  std::erase_if(now.refusals, [](const auto& refused) { return refused.second == 0; });
  Subtract(before.latency, now.latency);
  for (std::size_t s = 0; s < kCallStages; ++s) Subtract(before.stages[s], now.stages[s]);
}

}  // namespace

std::string_view ToString(CallStage stage) {
  switch (stage) {
    case CallStage::kDecode:
      return "decode";
    case CallStage::kQueue:
      return "inbox";
    case CallStage::kRound:
      return "round";
    case CallStage::kExchange:
      return "exchange";
    case CallStage::kJournal:
      return "journal";
    case CallStage::kEncode:
      return "encode";
    case CallStage::kSend:
      return "send";
  }
  return "unknown";
}

std::uint64_t DurationStats::count() const {
  return std::accumulate(buckets.begin(), buckets.end(), std::uint64_t{0});
}

double DurationStats::Mean() const {
  const std::uint64_t n = count();
  return n == 0 ? 0 : static_cast<double>(sum_ns) / static_cast<double>(n);
}

double DurationStats::Quantile(double q) const {
  const double rank = q * static_cast<double>(count());
  double below = 0;
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const auto here = static_cast<double>(buckets[b]);
    if (here > 0 && below + here >= rank) {
      const auto first = static_cast<double>(FirstOf(b));
      return first + (static_cast<double>(FirstOf(b + 1)) - first) * (rank - below) / here;
    }
    below += here;
  }
  return 0;
}

std::uint64_t CallStats::refused() const {
  const auto counts = std::views::values(refusals);
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

void DurationStats::Add(const DurationStats& more) {
  sum_ns += more.sum_ns;
  if (buckets.size() < more.buckets.size()) buckets.resize(more.buckets.size());
  for (std::size_t b = 0; b < more.buckets.size(); ++b) buckets[b] += more.buckets[b];
}

void CallStats::Add(const CallStats& more) {
  calls += more.calls;
  samples += more.samples;
  keys += more.keys;
  bytes_in += more.bytes_in;
  bytes_out += more.bytes_out;
  for (const auto& [code, count] : more.refusals) refusals[code] += count;
  latency.Add(more.latency);
  for (std::size_t s = 0; s < kCallStages; ++s) stages[s].Add(more.stages[s]);
}

RankStats RankStats::Since(const RankStats& before) const {
  RankStats since = *this;
  if (before.instance != instance || before.rank != rank || before.uptime_ns > uptime_ns) return since;
  since.uptime_ns -= before.uptime_ns;
  since.rounds -= before.rounds;
  Subtract(before.lookups, since.lookups);
  Subtract(before.pushes, since.pushes);
  return since;
}

}  // namespace slotwise
