// slotwise-launch runs slotwise-server on a data folder, as the only one there, and restarts it when it ends
// unasked.
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <variant>

#include "server/launch/data_lock.h"
#include "server/launch/launcher.h"
#include "server/launch/leftovers.h"
#include "server/launch/options.h"
#include "wire/standard_output.h"

namespace slotwise::launch {
namespace {

constexpr std::chrono::seconds kSweepLimit{60};

// Lines look like the server's, but with "launch" in the place of the rank.
void SetUpLogging() {
  auto logger = std::make_shared<spdlog::logger>("launch", std::make_shared<spdlog::sinks::stderr_sink_st>());
  logger->set_formatter(std::make_unique<spdlog::pattern_formatter>("%Y-%m-%dT%H:%M:%S.%eZ %l launch %v",
                                                                    spdlog::pattern_time_type::utc));
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(std::move(logger));
}

// Runs a sweep on this host that a launcher on another host has asked for, through mpirun.
int SweepThisHost(const std::string& id) {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  const Swept swept = KillLeftovers(id, kSweepLimit);
  if (!swept.killed.empty()) {
    spdlog::warn("killed what was left of an earlier run on {}: process {}", host.data(),
                 ListOf(swept.killed));
  }
  if (swept.left.empty()) return 0;
  spdlog::error("process {} of an earlier run on {} does not end, though killed", ListOf(swept.left),
                host.data());
  return 1;
}

int Main(int argc, char** argv, StandardOutput& output) {
  const auto parsed = ParseOptions(argc, argv);
  if (const int* exit_code = std::get_if<int>(&parsed)) return output.ExitCode("slotwise-launch", *exit_code);
  const Options& options = std::get<Options>(parsed);
  std::signal(SIGPIPE, SIG_IGN);  // the log's reader may end before the launcher
  SetUpLogging();
  if (!options.sweep.empty()) return SweepThisHost(options.sweep);
  const auto lock = DataLock::Take(options.data);
  if (!lock.ok()) {
    spdlog::error("{}", lock.status().message());
    return 1;
  }
  return Launcher(options, *lock).Run();
}

}  // namespace
}  // namespace slotwise::launch

int main(int argc, char** argv) {
  slotwise::StandardOutput output;
  try {
    return slotwise::launch::Main(argc, argv, output);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "slotwise-launch: %s\n", error.what());
    return 1;
  }
}
