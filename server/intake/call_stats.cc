#include "server/intake/call_stats.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <string>

namespace slotwise {
namespace {

void Add(std::atomic<std::uint64_t>& counter, std::uint64_t more) {
  counter.fetch_add(more, std::memory_order_relaxed);
}

std::uint64_t Get(const std::atomic<std::uint64_t>& counter) {
  return counter.load(std::memory_order_relaxed);
}

}  // namespace

void CallCounters::Count(const EndedCall& call) {
  if (call.kind == CallKind::kLookup) lookups_.Count(call);
  if (call.kind == CallKind::kPush) pushes_.Count(call);
}

void CallCounters::OfKind::Count(const EndedCall& call) {
  Add(bytes_in, call.bytes_in);
  Add(bytes_out, call.bytes_out);
  if (call.busy) return Add(busy, 1);
  if (call.code != StatusCode::kOk) return Add(refusals[static_cast<std::size_t>(call.code)], 1);
  Add(calls, 1);
  Add(samples, call.samples);
  Add(keys, call.keys);
  latency.Count(call.latency);
  for (std::size_t s = 0; s < kCallStages; ++s) {
    if (call.stages[s]) stages[s].Count(*call.stages[s]);
  }
}

CallStats CallCounters::OfKind::Read() const {
  CallStats stats{.calls = Get(calls),
                  .samples = Get(samples),
                  .keys = Get(keys),
                  .bytes_in = Get(bytes_in),
                  .bytes_out = Get(bytes_out),
                  .latency = latency.Read()};
  for (std::size_t code = 0; code < refusals.size(); ++code) {
    const std::uint64_t count = Get(refusals[code]);
    if (count > 0) stats.refusals[std::string(ToString(static_cast<StatusCode>(code)))] = count;
  }
  if (const std::uint64_t count = Get(busy); count > 0) stats.refusals[std::string(kBusyRefusals)] = count;
  for (std::size_t s = 0; s < kCallStages; ++s) stats.stages[s] = stages[s].Read();
  return stats;
}

void CallCounters::Read(RankStats& stats) const {
  using std::chrono::duration_cast;
  stats.started =
      static_cast<std::uint64_t>(duration_cast<std::chrono::seconds>(started_.time_since_epoch()).count());
  stats.uptime_ns = static_cast<std::uint64_t>(
      duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin_).count());
  stats.lookups = lookups_.Read();
  stats.pushes = pushes_.Read();
}

void LogCall(const Caller& caller, const EndedCall& call) {
  if (!spdlog::should_log(spdlog::level::debug)) return;
  const std::chrono::duration<double, std::milli> latency = call.latency;
  spdlog::debug("a {} of {} ended {} after {:.3f} ms: {} samples, {} keys, {} bytes in, {} out",
                call.kind == CallKind::kPush ? "push" : "lookup", caller.label(),
                call.busy ? "BUSY" : ToString(call.code), latency.count(), call.samples, call.keys,
                call.bytes_in, call.bytes_out);
}

}  // namespace slotwise
