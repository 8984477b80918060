#include "server/ops/fit_limits.h"

#include <array>
#include <utility>

namespace slotwise {
namespace {

constexpr std::uint64_t kLeastGpuSharedBufferMib = 1;
constexpr std::uint64_t kMostGpuSharedBufferMib = 1 << 24;
constexpr std::uint64_t kDeviceOverSharedBuffers = 16;

// The fields that take memory, by their names in the file.
std::array<std::pair<const char*, std::uint64_t>, 9> FieldsOf(const sizing::MemoryLimits& limits) {
  return {{{"limits.max_message_mib", limits.message},
           {"limits.max_round_mib", limits.round},
           {"limits.max_queue_mib", limits.queue},
           {"limits.max_shared_mib", limits.shared},
           {"limits.max_ledger_mib", limits.ledger},
           {"limits.max_evicted_mib", limits.evicted},
           {"limits.max_connections", limits.connections},
           {"limits.max_calls", limits.calls},
           {"durability.max_copy_on_write_mib", limits.copy_on_write}}};
}

std::string ListOf(const sizing::MemoryLimits& set) {
  std::string list;
  for (const auto& [name, value] : FieldsOf(set)) {
    if (value > 0) list += (list.empty() ? "" : ", ") + std::string(name) + ": " + std::to_string(value);
  }
  return list;
}

Status DoNotFit(const sizing::MemoryAsked& asked, const sizing::MemoryPlan& plan) {
  const std::string has = "a rank's share of its host's memory is " + std::to_string(asked.host_mib) +
                          " MiB, of which a 16th is kept";
  const std::string takes = std::to_string(plan.aside.all()) + " MiB (" + TextOf(plan.aside) + ")";
  std::string set = ListOf(asked.set);
  if (asked.set.calls == 0 && asked.least_calls > sizing::MemoryAsked{}.least_calls) {
    set += (set.empty() ? "" : ", ") +
           ("limits.max_calls_per_connection: " + std::to_string(asked.least_calls / 4));
  }
  if (set.empty()) return FailedPrecondition(has + ", and a server takes at least " + takes);
  return FailedPrecondition(set + ": with this a rank sets aside " + takes + ", and " + has +
                            ": lower what is set, or leave it out");
}

}  // namespace

std::string TextOf(const sizing::SetAside& aside) {
  std::string text;
  for (const auto& [name, mib] : {std::pair("process", aside.process),
                                  {"requests and replies", aside.requests},
                                  {"received", aside.received},
                                  {"shared with clients", aside.shared},
                                  {"exports", aside.exports},
                                  {"rounds", aside.rounds},
                                  {"names of steps", aside.ledger},
                                  {"evicted keys", aside.evicted},
                                  {"checkpoints and journal", aside.checkpoint},
                                  {"spare", aside.spare}}) {
    if (mib > 0) text += (text.empty() ? "" : ", ") + std::string(name) + " " + std::to_string(mib);
  }
  return text;
}

Result<sizing::MemoryPlan> FitLimits(const MemoryShare& memory, v1::ServerConfig& config) {
  v1::Limits& limits = *config.mutable_limits();
  v1::Durability& durability = *config.mutable_durability();
  const sizing::MemoryAsked asked{.host_mib = memory.host >> 20,
                                  .device_mib = memory.device >> 20,
                                  .gpu = memory.gpu,
                                  .several_ranks = memory.several_ranks,
                                  .keeps = !durability.folder().empty(),
                                  .journals = durability.mode() == v1::DURABILITY_MODE_SYNC,
                                  .least_calls = std::uint64_t{4} * limits.max_calls_per_connection(),
                                  .set = {.message = limits.max_message_mib(),
                                          .round = limits.max_round_mib(),
                                          .queue = limits.max_queue_mib(),
                                          .shared = limits.max_shared_mib(),
                                          .ledger = limits.max_ledger_mib(),
                                          .evicted = limits.max_evicted_mib(),
                                          .connections = limits.max_connections(),
                                          .calls = limits.max_calls(),
                                          .copy_on_write = durability.max_copy_on_write_mib()}};
  const sizing::MemoryPlan plan = sizing::PlanMemory(asked);
  if (!plan.fits) return DoNotFit(asked, plan);
  const auto narrow = [](std::uint64_t value) { return static_cast<std::uint32_t>(value); };
  limits.set_max_message_mib(narrow(plan.limits.message));
  limits.set_max_round_mib(narrow(plan.limits.round));
  limits.set_max_queue_mib(narrow(plan.limits.queue));
  limits.set_max_shared_mib(narrow(plan.limits.shared));
  limits.set_max_ledger_mib(narrow(plan.limits.ledger));
  limits.set_max_evicted_mib(narrow(plan.limits.evicted));
  limits.set_max_connections(narrow(plan.limits.connections));
  limits.set_max_calls(narrow(plan.limits.calls));
  durability.set_max_copy_on_write_mib(narrow(plan.limits.copy_on_write));
  if (limits.max_gpu_shared_mib() == 0) {
    limits.set_max_gpu_shared_mib(narrow(std::clamp(asked.device_mib / kDeviceOverSharedBuffers,
                                                    kLeastGpuSharedBufferMib, kMostGpuSharedBufferMib)));
  }
  return plan;
}

}  // namespace slotwise
