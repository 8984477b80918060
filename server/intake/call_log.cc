#include "server/intake/call_log.h"

#include <spdlog/spdlog.h>

#include <chrono>

namespace slotwise {

void LogCall(const Caller& caller, const EndedCall& call) {
  if (!spdlog::should_log(spdlog::level::debug)) return;
  const std::chrono::duration<double, std::milli> latency = call.latency;
  spdlog::debug("a {} of {} ended {} after {:.3f} ms: {} samples, {} keys, {} bytes in, {} out",
                call.kind == CallKind::kPush ? "push" : "lookup", caller.label(),
                call.busy ? "BUSY" : ToString(call.code), latency.count(), call.samples, call.keys,
                call.bytes_in, call.bytes_out);
}

}  // namespace slotwise
