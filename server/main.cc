// slotwise-server chooses the transport and the device, wires the rooms, and runs the engine until it is told
// to stop.
//
// A start has four parts. Each rank gets ready by itself (configuration, device). The ranks connect (each
// opens the exchange and its port). The engine runs and makes the configuration's tables. The gate opens.
// After each of the first two parts, either all ranks have succeeded or all exit with 1.
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/shard.h"
#include "server/collective/collective.h"
#include "server/configured.h"
#include "server/durability/threads.h"
#include "server/engine/engine.h"
#include "server/engine/operations/create_table.h"
#include "server/flags.h"
#include "server/ops/config_errors.h"
#include "server/ops/end_of_input.h"
#include "server/ops/fit_limits.h"
#include "server/ops/logging.h"
#include "server/ops/process_limits.h"
#include "server/ops/stop_signals.h"
#include "server/rooms.h"
#include "server/rpc/rpc_server.h"
#include "server/start_up.h"
#include "wire/standard_output.h"

namespace slotwise {
namespace {

// The longest time for replies to reach their callers after the engine has stopped.
constexpr std::chrono::seconds kShutdownGrace{5};

// The longest that ranks wait for each other during the start, because devices take different times to start.
constexpr std::chrono::minutes kStartLimit{5};

// The longest that a rank waits for another one's recovery: a large table takes as long as the disk takes to
// read it. A rank that dies meanwhile is noticed by the heartbeat.
constexpr std::chrono::hours kRecoveryLimit{12};
// The longest time that this process, at its end, waits for the log's reader.
constexpr std::chrono::seconds kLastWords{2};

// The programs that start MPI programs, by their names in Open MPI 4 and 5.
constexpr std::array<std::string_view, 6> kLaunchers{"mpirun", "mpiexec", "orterun",
                                                     "orted",  "prterun", "prted"};

// Queues requests to make the configuration's tables. Every rank asks for every table: the first request
// makes the table, and each rank gets an answer of its own once the table exists. Calls `ready` once, from
// the engine's thread, with the first error.
void MakeTables(Engine& engine, const std::vector<TableOptions>& tables,
                std::function<void(const Status&)> ready) {
  struct Progress {
    std::size_t missing;
    Status first_error;
    std::function<void(const Status&)> ready;
  };
  if (tables.empty()) return ready({});
  const auto progress = std::make_shared<Progress>(Progress{tables.size(), {}, std::move(ready)});
  for (const TableOptions& options : tables) {
    engine.Submit(CreateTableRequest{
        .options = options, .done = [progress, name = options.name](const Result<CreatedTable>& table) {
          if (!table.ok() && progress->first_error.ok()) {
            progress->first_error = {table.status().code(),
                                     "table \"" + name.str() + "\": " + table.status().message()};
          }
          if (--progress->missing == 0) progress->ready(progress->first_error);
        }});
  }
}

// Returns an exception's message; if threads could not be started, says that.
std::string WordsOf(const std::exception& error) {
  const auto* const system = dynamic_cast<const std::system_error*>(&error);
  const bool no_threads = system != nullptr && system->code() == std::errc::resource_unavailable_try_again;
  return no_threads ? NoMoreThreads(*system).message() : error.what();
}

// Ends this process and the other ranks after an error that only this rank has seen, while others wait for
// it.
[[noreturn]] void EndAllRanks(const std::exception& error) {
  spdlog::critical("{}", WordsOf(error));
  FlushLog(kLastWords);
  if (LaunchedByMpi()) MpiSession::AbortAllRanks(1);
  std::_Exit(1);  // skips destructors, which would wait for requests that are not answered any more
}

// Ends this process, because the ranks cannot go on together; the launcher then ends the others.
[[noreturn]] void EndThisRank(const std::string& why) {
  spdlog::critical("{}: this rank ends", why);
  FlushLog(kLastWords);
  std::_Exit(1);
}

// Limits from now on how long this rank waits for the others. A rank that waits longer ends at once, without
// waiting for anything.
void LimitCollectives(Collective& collective, std::chrono::milliseconds limit) {
  collective.watchdog().Start(limit, EndThisRank);
}

// Tells the program that reads this server's standard output where the ranks serve.
void WriteAddresses(const std::vector<RankPlace>& ranks) {
  std::string line = "serving";
  for (const RankPlace& rank : ranks) line += " " + rank.address;
  line += '\n';
  // A program that no longer reads has ended, so standard input ends too.
  if (std::fputs(line.c_str(), stdout) < 0 || std::fflush(stdout) != 0) {
    spdlog::error("cannot write the addresses to standard output: {}", std::strerror(errno));
  }
}

struct Ending {
  int exit_code = 0;
  bool launcher_is_stopping = false;  // true if it is stopping on any rank, and does not answer MPI_Finalize
};

Ending Serve(const Flags& flags, Collective& collective) {
  SetUpLogging({.rank = collective.rank()});  // applies until the configuration is read
  LimitCollectives(collective, kStartLimit);
  Rooms rooms;
  if (!AllReady(collective, GetReady(flags, collective, rooms))) return {.exit_code = 1};
  if (!rooms.config.durability().folder().empty()) LimitCollectives(collective, kRecoveryLimit);
  const auto places = AgreeOnPlaces(collective, Connect(collective, EndThisRank, rooms));
  if (!places) return {.exit_code = 1};
  std::vector<std::string> metrics;
  for (const RankPlace& place : *places) metrics.push_back(place.metrics);
  rooms.peers->Set(static_cast<std::uint32_t>(Value(collective.rank())), std::move(metrics));
  const std::chrono::milliseconds limit(rooms.config.limits().collective_timeout_ms());
  LimitCollectives(collective, limit);

  std::atomic<bool> failed = false;
  std::atomic<std::uint64_t> launcher_is_stopping = 0;
  const Topology topology{.version = SLOTWISE_VERSION, .ranks = *places, .rank = collective.rank()};
  const StopSignals signals([&](const StopSignal& signal) {
    spdlog::info("{} from {}: finishing what runs", signal.name, signal.sender);
    launcher_is_stopping = std::ranges::count(kLaunchers, signal.sender);
    rooms.engine->RequestStop();
  });
  const bool attached = flags.attached && Value(collective.rank()) == 0;  // mpirun gives rank 0 its own input
  std::optional<EndOfInput> end_of_input;
  if (attached) {
    end_of_input.emplace(STDIN_FILENO, [&rooms] {
      spdlog::info("standard input ended: finishing what runs");
      rooms.engine->RequestStop();
    });
  }
  MakeTables(*rooms.engine, rooms.tables, [&](const Status& status) {
    if (!status.ok()) {
      failed = true;
      if (Value(collective.rank()) == 0)
        spdlog::error("cannot make a table of the configuration: {}", status.message());
      return rooms.engine->RequestStop();
    }
    rooms.rpc->Open(topology);
    const RankPlace& place = topology.ranks[static_cast<std::size_t>(Value(topology.rank))];
    spdlog::info("ready at {}: rank {} of {} on {}, {} table(s) from the configuration", place.address,
                 Value(topology.rank), topology.ranks.size(), place.device, rooms.tables.size());
    if (attached) WriteAddresses(topology.ranks);
  });

  try {
    rooms.engine->Run();
  } catch (const std::exception& error) {
    EndAllRanks(error);
  }
  rooms.heartbeat.reset();  // ranks end separately, each when it has finished
  LimitCollectives(collective, limit + kShutdownGrace);
  rooms.rpc->Shutdown(kShutdownGrace);
  spdlog::info("stopped");
  FlushLog(kLastWords);  // while the launcher still listens
  std::uint64_t ranks_without_launcher = launcher_is_stopping;
  collective.AllReduceSum({&ranks_without_launcher, 1});
  return {.exit_code = failed ? 1 : 0, .launcher_is_stopping = ranks_without_launcher > 0};
}

int CheckConfig(const Flags& flags) {
  ConfigErrors errors;
  const Configured configured = Configure(flags, errors);
  for (const std::string& error : errors.Errors()) std::fprintf(stderr, "%s\n", error.c_str());
  for (const std::string& warning : errors.Warnings()) std::fprintf(stderr, "warning: %s\n", warning.c_str());
  if (!errors.empty()) return 1;
  std::cout << flags.config_path << " is right: " << configured.tables.size() << " table(s)\n";
  // The file may be for another host, so this is no error. Tables on a GPU take no memory of the host.
  v1::ServerConfig values = configured.config.values;
  const std::uint64_t host = HostMemoryBytesInAll();
  const MemoryShare all{.device = host, .host = host, .gpu = UsesGpu(values.backend())};
  if (const auto fits = FitLimits(all, values); !fits.ok())
    std::cout << "here not even one rank would start: " << fits.status().message() << "\n";
  return 0;
}

int Main(int argc, char** argv, StandardOutput& output) {
  const auto parsed = ParseFlags(argc, argv);
  if (const int* exit_code = std::get_if<int>(&parsed)) return output.ExitCode("slotwise-server", *exit_code);
  const Flags& flags = std::get<Flags>(parsed);
  if (flags.check_config) return output.ExitCode("slotwise-server", CheckConfig(flags));

  if (const Status enough = ProcessLimits::Mine().Check(); !enough.ok()) {
    std::fprintf(stderr, "slotwise-server: %s\n", enough.message().c_str());
    return 1;
  }
  std::signal(SIGPIPE, SIG_IGN);  // the log's reader may end before the server
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow (ulimit -f) is reported as an error
  HoldStopSignals();              // before MPI and gRPC start threads
  if (!LaunchedByMpi()) return Serve(flags, *MakeSoloCollective()).exit_code;
  const MpiSession mpi;
  try {
    const Ending ending = Serve(flags, *MakeMpiCollective());
    // After a SIGTERM, mpirun signals the ranks, no longer answers MPI_Finalize, and kills all ranks as soon
    // as one has ended, or a second later. The ranks have just agreed that all have finished, so they exit at
    // once, together.
    if (ending.launcher_is_stopping) std::_Exit(ending.exit_code);
    return ending.exit_code;
  } catch (const std::exception& error) {
    EndAllRanks(error);
  }
}

}  // namespace
}  // namespace slotwise

int main(int argc, char** argv) {
  int exit_code = 1;
  slotwise::StandardOutput output;
  try {
    exit_code = slotwise::Main(argc, argv, output);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "slotwise-server: %s\n", slotwise::WordsOf(error).c_str());
  }
  slotwise::FlushLog(slotwise::kLastWords);
  return exit_code;
}
